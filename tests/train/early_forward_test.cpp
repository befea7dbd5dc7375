#include <boost/test/unit_test.hpp>

#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "train_rig.hpp"

#include <cmath>
#include <string>

using namespace lockstep;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

/// Waits for the device notice that a rank is lost once `is_lost` is set.
class LosesRank final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void synchronize() override {
    if (is_lost) fail(ExitStatus::internal, "rank 1 was lost");
  }
  bool is_lost = false;
};

}  // namespace

BOOST_AUTO_TEST_CASE(steps_with_forward_queued_early_give_the_same_bits) {
  const Rig::Options variants[] = {
      {.global_batch = 30, .bucket_bytes = 4096},
      {.global_batch = 31, .accumulate = 2, .optimizer = OptimizerKind::adamw},
      {.global_batch = 30, .clip_grad_norm = 0.1, .reduce_dtype = ElementType::bf16},
      {.global_batch = 30, .optimizer = OptimizerKind::lars, .precision = Precision::bf16},
      {.global_batch = 30, .clip_grad_norm = 0.1, .optimizer = OptimizerKind::lamb},
      {.global_batch = 30,
       .clip_grad_norm = 0.1,
       .precision = Precision::fp16,
       .loss_scale = LossScale{.scale = 0x1p20}},
  };
  for (const Rig::Options& variant : variants) {
    Rig::Options options = variant;
    options.device = true;
    Rig waits(*world, options);
    options.work = gpu::HostWork::late;
    Rig ahead(*world, options);
    int skipped = 0;
    for (int step = 0; step < 8; ++step) {
      const bool last = step == 7;
      const StepResult expected = waits.run();
      const StepResult result = ahead.run(last ? NextAction::other : NextAction::step);
      // The next step's forward is queued, and nothing waits for it.
      BOOST_TEST((gpu::work_left(ahead.device()) > 0) == !last);
      BOOST_TEST(result.sums.loss == expected.sums.loss);
      BOOST_TEST((result.sums.metrics == expected.sums.metrics));
      BOOST_TEST((result.gradient_norm == expected.gradient_norm ||
                  (std::isnan(result.gradient_norm) && std::isnan(expected.gradient_norm))));
      BOOST_TEST(result.overflowed == expected.overflowed);
      BOOST_TEST(ahead.bits() == waits.bits());
      skipped += result.overflowed ? 1 : 0;
    }
    BOOST_TEST((skipped > 0) == variant.loss_scale.has_value());
    BOOST_TEST(skipped < 8);
  }
}

// Each collective on a late device's memory waits for its queued work here, but not for later work.
BOOST_AUTO_TEST_CASE(a_forward_with_collectives_is_queued_early_with_the_same_bits) {
  for (const ShardMode shard : {ShardMode::none, ShardMode::full}) {
    const Rig::Options options{
        .synchronised = true, .device = true, .work = gpu::HostWork::late, .shard = shard};
    Rig waits(*world, options);
    Rig ahead(*world, options);
    for (int step = 0; step < 4; ++step) {
      const bool last = step == 3;
      const double expected = waits.run().sums.loss;
      BOOST_TEST(ahead.run(last ? NextAction::other : NextAction::step).sums.loss == expected);
      BOOST_TEST((gpu::work_left(ahead.device()) > 0) == !last);
    }
    BOOST_TEST((ahead.all_parameters() == waits.all_parameters()));
    BOOST_TEST((ahead.statistics() == waits.statistics()));
  }
}

BOOST_AUTO_TEST_CASE(all_ranks_queue_a_forward_with_collectives_if_the_data_of_one_fail) {
  const int failing = world->size() - 1;
  Rig rig(*world, {.global_batch = 18,
                   .synchronised = true,
                   .device = true,
                   .work = gpu::HostWork::late,
                   .before_batch = [&, batches = 0](FunctionRef<void()>) mutable {
                     if (world->rank() == failing && ++batches == 3) {
                       fail(ExitStatus::bad_input, "the third batch is broken");
                     }
                   }});
  BOOST_TEST(rig.run(NextAction::step).sums.failed == 0);
  BOOST_TEST(rig.run(NextAction::step).sums.failed == 1);
  BOOST_TEST(gpu::work_left(rig.device()) > 0U);
}

BOOST_AUTO_TEST_CASE(ranks_whose_data_end_queue_a_forward_like_one_whose_data_fail) {
  const int failing = world->size() - 1;
  Rig rig(*world, {.global_batch = 24,
                   .accumulate = 2,
                   .synchronised = true,
                   .device = true,
                   .work = gpu::HostWork::late,
                   .steps = 2,
                   .before_batch = [&, batches = 0](FunctionRef<void()>) mutable {
                     if (world->rank() == failing && ++batches >= 4) {
                       fail(ExitStatus::bad_input, "the last batch is broken");
                     }
                   }});
  BOOST_TEST(rig.run(NextAction::step).sums.failed == 0);
  BOOST_TEST(rig.run(NextAction::step).sums.failed == 1);
  BOOST_TEST(gpu::work_left(rig.device()) > 0U);
}

BOOST_AUTO_TEST_CASE(a_read_behind_an_early_forward_ends_if_a_rank_is_lost) {
  for (const ShardMode shard : {ShardMode::none, ShardMode::full}) {
    LosesRank comm(*world);
    Rig rig(comm, {.synchronised = true,
                   .device = true,
                   .shard = shard,
                   .device_comms = {&comm, nullptr, nullptr}});
    rig.run(NextAction::step);
    rig.state().await_gathers();
    comm.is_lost = true;
    BOOST_CHECK_EXCEPTION(rig.state().await_gathers(), Error, [](const Error& error) {
      return std::string(error.what()) == "rank 1 was lost";
    });
  }
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
