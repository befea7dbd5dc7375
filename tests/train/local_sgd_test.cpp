#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "train_rig.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace lockstep;
using lockstep::test::relative_difference;
using lockstep::test::same_on_all_ranks;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

// fp32 sums in another order: some ulps.
constexpr double rounding = 1e-5;

/// The mean over ranks, in double.
std::vector<float> mean_over_ranks(const std::vector<float>& mine) {
  std::vector<double> sums(mine.begin(), mine.end());
  world->all_reduce(std::span(sums));
  std::vector<float> mean;
  for (const double sum : sums) mean.push_back(static_cast<float>(sum / world->size()));
  return mean;
}

std::vector<float> own(Rig& rig, std::span<const float> arena) {
  std::vector<float> values(arena.size());
  rig.engine().memory().read(arena, values);
  return values;
}

std::uint64_t checksum(const std::vector<float>& values) {
  return crc32c(std::as_bytes(std::span<const float>(values)));
}

std::vector<Rig::Options> variants() {
  return {{.global_batch = 24, .bucket_bytes = 4096},
          {.global_batch = 31, .accumulate = 2, .optimizer = OptimizerKind::adamw, .lr = 1e-3},
          {.global_batch = 24, .clip_grad_norm = 0.1, .ema_decay = 0.5},
          {.global_batch = 24, .precision = Precision::bf16},
          {.global_batch = 24, .bucket_bytes = 4096, .device = true, .ema_decay = 0.5},
          {.global_batch = 31,
           .accumulate = 2,
           .optimizer = OptimizerKind::lars,
           .device = true,
           .work = gpu::HostWork::late}};
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_average_gives_all_ranks_the_mean_of_their_replicas) {
  for (const bool averages_slots : {true, false}) {
    for (Rig::Options options : variants()) {
      options.averages_slots = averages_slots;
      Rig averaged(*world, options);
      Rig local(*world, options);
      for (int step = 0; step < 2; ++step) {
        averaged.run(NextAction::step, StepSync::local);
        local.run(NextAction::step, StepSync::local);
      }
      BOOST_TEST((world->size() == 1) ==
                 same_on_all_ranks(*world, checksum(own(local, local.engine().parameters()))));

      const StepResult result = averaged.run(NextAction::step, StepSync::average);
      const StepResult expected = local.run(NextAction::step, StepSync::local);

      BOOST_TEST(result.sums.loss == expected.sums.loss);
      const auto check = [&](std::span<const float> found, std::span<const float> replica) {
        const std::vector<float> values = own(averaged, found);
        BOOST_TEST(same_on_all_ranks(*world, checksum(values)));
        BOOST_TEST(relative_difference(values, mean_over_ranks(own(local, replica))) < rounding);
      };
      check(averaged.engine().parameters(), local.engine().parameters());
      for (std::size_t slot = 0; slot < local.optimizer().slot_names().size(); ++slot) {
        const std::span<const float> found = averaged.optimizer().slot(slot);
        const std::span<const float> replica = local.optimizer().slot(slot);
        if (averages_slots || local.optimizer().slot_names()[slot] == ema_slot) {
          check(found, replica);
        } else {
          BOOST_TEST((own(averaged, found) == own(local, replica)));
        }
      }
      BOOST_TEST(same_on_all_ranks(*world, checksum(averaged.statistics())));
      BOOST_TEST((averaged.statistics() == local.statistics()));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_mean_of_first_updates_is_the_update_with_the_mean_gradient) {
  for (const bool device : {false, true}) {
    for (const int accumulate : {1, 2}) {
      const Rig::Options options{.global_batch = 24, .accumulate = accumulate, .device = device};
      Rig synchronous(*world, options);
      Rig local(*world, options);

      const StepResult expected = synchronous.run();
      const StepResult result = local.run(NextAction::other, StepSync::average);

      BOOST_TEST(result.sums.loss == expected.sums.loss);
      BOOST_TEST(relative_difference(local.all_parameters(), synchronous.all_parameters()) <
                 rounding);
      BOOST_TEST(relative_difference(local.all_of_slot(0), synchronous.all_of_slot(0)) < rounding);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_forward_that_is_queued_early_sees_the_average) {
  const auto bits_after = [](NextAction next) {
    Rig rig(*world, {.global_batch = 24, .device = true, .work = gpu::HostWork::late});
    for (const StepSync sync : {StepSync::local, StepSync::average, StepSync::local}) {
      rig.run(next, sync);
    }
    rig.run(NextAction::other, StepSync::average);
    return checksum(own(rig, rig.engine().parameters()));
  };
  BOOST_TEST(bits_after(NextAction::step) == bits_after(NextAction::other));
}

BOOST_AUTO_TEST_CASE(steps_after_an_average_may_be_synchronous) {
  Rig rig(*world, {.global_batch = 24});
  rig.run(NextAction::step, StepSync::local);
  rig.run(NextAction::step, StepSync::average);
  rig.run();
  BOOST_TEST(same_on_all_ranks(*world, rig.bits()));
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
