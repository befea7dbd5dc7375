#define BOOST_TEST_MODULE state_snapshot
#define BOOST_TEST_NO_MAIN
#include <boost/test/unit_test.hpp>

#include "comm/allocation_count.hpp"
#include "lockstep/checkpointing/state_snapshot.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "train/train_rig.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace lockstep;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

/// A checkpoint's tensors, by group.
using Tensors = std::map<std::string, std::vector<NamedTensor>>;

/// On rank 0, takes tensors from a snapshot like the checkpoint writer, as many as may_take()
/// permits. On other ranks it does nothing.
class Writer final {
 public:
  explicit Writer(StateSnapshot& snapshot) : snapshot_(snapshot) {
    if (world->rank() == 0) thread_ = std::thread([this] { drain(); });
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  ~Writer() {
    snapshot_.give_up();
    wait();
  }

  [[nodiscard]] bool busy() const { return thread_.joinable() && !done_; }
  void may_take(int tensors) { permits_.release(tensors); }
  void wait() {
    may_take(10000);
    if (thread_.joinable()) thread_.join();
  }
  /// Valid after wait().
  [[nodiscard]] const Tensors& tensors() const { return tensors_; }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  void drain() {
    try {
      for (permits_.acquire(); auto stored = snapshot_.next(); permits_.acquire()) {
        tensors_[stored->group].push_back(std::move(stored->tensor));
      }
    } catch (const Error& error) {
      error_ = error;
    }
    done_ = true;
  }

  StateSnapshot& snapshot_;
  Tensors tensors_;
  std::optional<Error> error_;
  std::atomic<bool> done_ = false;
  std::counting_semaphore<> permits_{0};
  std::thread thread_;
};

StateSnapshot::Source source_of(Rig& rig) {
  return {.engine = rig.engine(),
          .transfer = rig.state(),
          .optimizer = rig.optimizer(),
          .average = rig.average()};
}

/// The values of the tensors with these names, concatenated.
std::vector<float> values_of(const std::vector<NamedTensor>& tensors, const auto& names) {
  std::vector<float> all;
  for (const auto& named : names) {
    const auto found = std::ranges::find(tensors, named.name, &NamedTensor::name);
    BOOST_REQUIRE(found != tensors.end());
    all.insert(all.end(), found->values.begin(), found->values.end());
  }
  return all;
}

/// The current state of all ranks, gathered by the rig.
struct Expected {
  explicit Expected(Rig& rig) : parameters(rig.all_parameters()), statistics(rig.statistics()) {
    const auto names = rig.optimizer().slot_names();
    for (std::size_t slot = 0; slot < names.size(); ++slot) {
      const bool is_average = names[slot] == ema_slot;
      slots[is_average ? ema_group : slot_group(names[slot])] = rig.all_of_slot(slot);
    }
    const auto averaged = rig.average()->statistics();
    averaged_statistics.assign(averaged.begin(), averaged.end());
  }
  void check(const Tensors& found, const Graph& graph) const {
    BOOST_TEST(found.size() == 1 + slots.size());
    const auto& model = found.at(model_group);
    BOOST_TEST(model.size() == graph.parameters().size() + graph.statistics().size());
    BOOST_TEST((values_of(model, graph.parameters()) == parameters));
    BOOST_TEST((values_of(model, graph.statistics()) == statistics));
    BOOST_TEST((averaged_statistics != statistics));
    BOOST_TEST((values_of(found.at(ema_group), graph.statistics()) == averaged_statistics));
    for (const auto& [group, values] : slots) {
      BOOST_TEST(found.at(group).size() ==
                 graph.parameters().size() + (group == ema_group ? graph.statistics().size() : 0));
      BOOST_TEST((values_of(found.at(group), graph.parameters()) == values), group);
    }
  }

  std::vector<float> parameters;
  std::vector<float> statistics;
  std::vector<float> averaged_statistics;
  std::map<std::string, std::vector<float>> slots;
};

/// Rank 0's value, on all ranks.
int agreed(int wanted) {
  world->broadcast(std::span(&wanted, 1));
  return wanted;
}

/// Trains until the slow writer has all tensors, so that delivered units wait for it. Returns the
/// number of step boundaries that delivered units.
int deliver_while_training(Rig& rig, StateSnapshot& snapshot, Writer& writer) {
  int boundaries = 0;
  while (agreed(writer.busy() ? 1 : 0) == 1) {
    if (const int units = agreed(world->rank() == 0 ? snapshot.wanted() : 0); units > 0) {
      ++boundaries;
      rig.run();
      snapshot.deliver(units);
    }
    writer.may_take(1);
  }
  return boundaries;
}

/// Saves twice, so that the buffer is reused. `limit`: the largest number of values in it.
void check_snapshot(Rig::Options options, std::size_t limit) {
  BOOST_TEST_CONTEXT("mode " << static_cast<int>(options.shard) << ", groups of "
                             << options.shard_group << ", at most " << limit << " values") {
    options.global_batch = 24;
    options.optimizer = OptimizerKind::adamw;
    options.lr = 1e-3;
    options.ema_decay = 0.5;
    Rig rig(*world, options);
    StateSnapshot snapshot(source_of(rig), world->rank() == 0, limit);
    const std::size_t units = 4 * rig.state().units().size();
    for (int save = 0; save < 2; ++save) {
      for (int step = 0; step < 2; ++step) rig.run();
      rig.state().await_gathers();
      const Expected expected(rig);
      snapshot.take();
      Writer writer(snapshot);
      const int boundaries = deliver_while_training(rig, snapshot, writer);
      rig.run();
      writer.wait();
      if (world->rank() != 0) continue;
      BOOST_REQUIRE(!writer.error());
      expected.check(writer.tensors(), rig.engine().graph());
      if (options.shard == ShardMode::none) {
        BOOST_TEST(boundaries == 0);
      } else if (limit == most_gathered_values) {
        BOOST_TEST(boundaries == 1, "all units fit into the buffer");
      } else {
        BOOST_TEST(boundaries > 2);
        BOOST_TEST(boundaries <= static_cast<int>(units));
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(units_delivered_during_training_hold_the_state_of_the_boundary) {
  for (const std::size_t limit : {std::size_t{1}, std::size_t{30000}, most_gathered_values}) {
    for (const ShardMode mode : {ShardMode::none, ShardMode::optimizer, ShardMode::full}) {
      check_snapshot({.shard = mode}, limit);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_first_shard_group_delivers_the_units) {
  for (const std::int64_t group : {1, 2, 4}) {
    if (world->size() % group != 0) continue;
    check_snapshot({.shard = ShardMode::hybrid, .shard_group = group}, 30000);
  }
}

BOOST_AUTO_TEST_CASE(devices_deliver_their_units) {
  check_snapshot({.device = true, .shard = ShardMode::full}, 30000);
  check_snapshot({.device = true, .shard = ShardMode::hybrid, .shard_group = 1}, 30000);
}

BOOST_AUTO_TEST_CASE(delivering_units_allocates_nothing) {
  Rig rig(*world, {.global_batch = 24, .shard = ShardMode::full});
  rig.run();
  rig.state().await_gathers();
  StateSnapshot snapshot(source_of(rig), world->rank() == 0);
  const long before = test::allocation_count();
  snapshot.take();
  const int units = agreed(world->rank() == 0 ? snapshot.wanted() : 0);
  snapshot.deliver(units);
  BOOST_TEST(units == static_cast<int>(2 * rig.state().units().size()));
  BOOST_TEST(test::allocation_count() == before);
}

BOOST_AUTO_TEST_CASE(a_writer_without_units_ends_and_the_next_snapshot_is_complete) {
  Rig rig(*world, {.global_batch = 24,
                   .optimizer = OptimizerKind::adamw,
                   .ema_decay = 0.5,
                   .shard = ShardMode::full});
  StateSnapshot snapshot(source_of(rig), world->rank() == 0, 1);
  rig.run();
  rig.state().await_gathers();
  snapshot.take();
  {
    Writer writer(snapshot);
    writer.may_take(10000);
    snapshot.deliver(agreed(world->rank() == 0 ? snapshot.wanted() : 0));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    snapshot.give_up();
    writer.wait();
    if (world->rank() == 0) {
      BOOST_REQUIRE(writer.error().has_value());
      BOOST_TEST((writer.error()->status() == ExitStatus::cannot_write));
      BOOST_TEST(snapshot.waited_seconds() > 0.005);
    }
  }
  rig.run();
  rig.state().await_gathers();
  const Expected expected(rig);
  snapshot.take();
  BOOST_TEST(snapshot.waited_seconds() == 0);
  Writer writer(snapshot);
  deliver_while_training(rig, snapshot, writer);
  writer.wait();
  if (world->rank() == 0) expected.check(writer.tensors(), rig.engine().graph());
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
