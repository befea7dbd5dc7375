#include <boost/test/unit_test.hpp>

#include "comm/communicator_suite.hpp"
#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/checked_communicator.hpp"
#include "lockstep/comm/mesh.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/core/error.hpp"

#include <optional>
#include <string>
#include <vector>

using namespace lockstep;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

struct Checked {
  std::int64_t step = 3;
  std::unique_ptr<Communicator> inner = make_mpi_communicator();
  CollectiveComparison comparison{
      make_mpi_communicator(), [this] { return step; },
      std::vector<std::string>(static_cast<std::size_t>(inner->size()), "node7")};
  CheckedCommunicator comm{*inner, comparison, "the host's"};

  [[nodiscard]] bool is_last() const { return comm.rank() == comm.size() - 1; }
  [[nodiscard]] std::string last_name() const { return "rank " + std::to_string(comm.size() - 1); }
};

/// The text of the error that `work` throws; empty if it throws none.
std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.status() == ExitStatus::internal ? error.what() : "another status";
  }
  return "";
}

/// Checks that all ranks name the rank that differs, and both calls. With two ranks, either may be
/// wrong; the second is named.
void check_named(const Checked& checked, const std::string& text, const std::string& call,
                 const std::string& right_call) {
  if (checked.comm.size() == 1) {
    BOOST_TEST(text.empty());
    return;
  }
  const std::string expected = checked.last_name() + " (";
  BOOST_TEST(text.find(expected) == 0U, text);
  BOOST_TEST(text.find(") calls " + call) != std::string::npos, text);
  BOOST_TEST(text.find(", but rank 0 (") != std::string::npos, text);
  BOOST_TEST(text.find(") " + right_call) != std::string::npos, text);
}

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_with_matching_calls_pass_the_suite) {
  Checked checked;

  test::check_communicator(checked.comm, {0, 1, 2, 3, 17, 1000});
}

BOOST_AUTO_TEST_CASE(a_rank_that_skips_a_collective_is_named) {
  Checked checked;
  std::vector<float> values(8);
  checked.comm.all_reduce(std::span(values));

  const std::string text = refusal([&] {
    if (!checked.is_last() || checked.comm.size() == 1) checked.comm.barrier();
    checked.comm.broadcast(std::span(values), 0);
  });

  check_named(checked, text, "broadcast of 8 f32 from or to rank 0 as collective 2 in step 3",
              "barrier as collective 2 in step 3, of the host's communicator");
}

BOOST_AUTO_TEST_CASE(a_different_size_type_operation_or_root_is_named) {
  std::vector<float> values(8);
  std::vector<double> wide(8);
  const auto size = [&](Checked& c) {
    Request request =
        c.comm.start_all_reduce(std::span(values).first(c.is_last() && c.comm.size() > 1 ? 7 : 8));
    c.comm.wait(request);
  };
  const auto type = [&](Checked& c) {
    if (c.is_last() && c.comm.size() > 1) {
      c.comm.all_reduce(std::span(wide));
    } else {
      c.comm.all_reduce(std::span(values));
    }
  };
  const auto operation = [&](Checked& c) {
    c.comm.all_reduce(std::span(values),
                      c.is_last() && c.comm.size() > 1 ? ReduceOp::max : ReduceOp::sum);
  };
  const auto root = [&](Checked& c) {
    c.comm.broadcast(std::span(values), c.is_last() && c.comm.size() > 1 ? 1 : 0);
  };
  const auto gather_size = [&](Checked& c) {
    std::vector<float> all(4 * static_cast<std::size_t>(c.comm.size()));
    Request request = c.comm.start_all_gather(
        std::span<const float>(values).first(c.is_last() && c.comm.size() > 1 ? 3 : 4),
        std::span(all));
    c.comm.wait(request);
  };
  const auto kind = [&](Checked& c) {
    std::vector<float> all(8 * static_cast<std::size_t>(c.comm.size()));
    const std::span<float> mine(values);
    Request request = c.is_last() && c.comm.size() > 1
                          ? c.comm.start_all_gather(std::span<const float>(mine), std::span(all))
                          : c.comm.start_reduce_scatter(std::span<const float>(all), mine);
    c.comm.wait(request);
  };
  struct Case {
    std::function<void(Checked&)> work;
    const char* wrong;
    const char* right;
  };
  for (const Case& each :
       {Case{size, "started all-reduce (sum) of 7 f32", "started all-reduce (sum) of 8 f32"},
        Case{type, "all-reduce (sum) of 8 f64", "all-reduce (sum) of 8 f32"},
        Case{gather_size, "started all-gather of 3 f32", "started all-gather of 4 f32"},
        Case{kind, "started all-gather of 8 f32", "started reduce-scatter (sum) of 8 f32"},
        Case{operation, "all-reduce (max) of 8 f32", "all-reduce (sum) of 8"},
        Case{root, "broadcast of 8 f32 from or to rank 1",
             "broadcast of 8 f32 from or to rank 0"}}) {
    Checked checked;
    check_named(checked, refusal([&] { each.work(checked); }), each.wrong, each.right);
  }
}

BOOST_AUTO_TEST_CASE(groups_are_compared_separately_and_a_differing_rank_is_named_at_once) {
  Checked checked;
  const int group_size = checked.comm.size() % 2 == 0 ? 2 : 1;
  const Mesh mesh = data_mesh(checked.comm.size(), group_size);
  const std::vector<int> ranks = mesh.ranks(checked.comm.rank(), {shard_axis});
  const auto world = make_mpi_communicator();
  const auto inner = mesh.split(*world, {shard_axis});
  CheckedCommunicator group(*inner, checked.comparison, "the group's",
                            CollectiveComparison::Callers::group);
  checked.comm.barrier();
  checked.comparison.compare_in_groups(ranks);

  std::vector<float> values(8);
  BOOST_TEST(refusal([&] {
               if (ranks.front() == 0) group.broadcast(std::span(values));
               checked.comm.barrier();
             }).empty());

  // The other ranks of its group detect it, although it continues with a collective of all ranks.
  if (ranks.back() != checked.comm.size() - 1 || group_size == 1) return;
  const std::string text = refusal([&] {
    if (!checked.is_last()) group.broadcast(std::span(values));
    checked.comm.barrier();
  });
  const std::string number = ranks.front() == 0 ? "4" : "3";
  BOOST_TEST(text.find(checked.last_name() + " (node7) calls barrier as collective " + number +
                       " in step 3, of the host's communicator, but rank " +
                       std::to_string(ranks.front()) + " (node7) broadcast of 8 f32") == 0U,
             text);
  BOOST_TEST(text.find("1 of 2 ranks differ") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(the_same_call_in_another_step_or_on_another_communicator_is_named) {
  Checked checked;
  const auto other = make_mpi_communicator();
  CheckedCommunicator device(*other, checked.comparison, "the device's");
  const bool odd = checked.is_last() && checked.comm.size() > 1;
  if (odd) checked.step = 4;
  check_named(checked, refusal([&] { checked.comm.barrier(); }),
              "barrier as collective 1 in step 4", "barrier as collective 1 in step 3");

  checked.step = 5;
  check_named(checked, refusal([&] {
                if (odd) {
                  device.barrier();
                } else {
                  checked.comm.barrier();
                }
              }),
              "barrier as collective 2 in step 5, of the device's communicator",
              "barrier as collective 2 in step 5, of the host's communicator");
}
