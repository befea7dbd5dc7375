#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "train_rig.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <tuple>
#include <vector>

using namespace lockstep;
using lockstep::test::relative_difference;
using lockstep::test::same_on_all_ranks;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

// fp32 sums of a few hundred terms in a different order: some ulps, far below 1e-5.
constexpr double rounding = 1e-5;

}  // namespace

BOOST_AUTO_TEST_CASE(all_ranks_hold_the_same_bits_after_every_step) {
  for (const OptimizerKind optimizer :
       {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw, OptimizerKind::lars,
        OptimizerKind::lamb, OptimizerKind::lion}) {
    for (const auto& [precision, dtype] : {std::pair{Precision::fp32, ElementType::f32},
                                           {Precision::bf16, ElementType::f32},
                                           {Precision::fp32, ElementType::bf16},
                                           {Precision::bf16, ElementType::f16}}) {
      Rig rig(*world, {.global_batch = 31,
                       .bucket_bytes = 4096,
                       .optimizer = optimizer,
                       .precision = precision,
                       .reduce_dtype = dtype});
      for (int step = 0; step < 3; ++step) {
        rig.run();
        BOOST_TEST(same_on_all_ranks(*world, rig.bits()));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(gradients_in_bf16_differ_from_fp32_only_by_rounding) {
  for (const char* model : {"mini-resnet", "simple-cnn"}) {
    Rig in_fp32(*world, {.model = model});
    Rig in_16_bits(*world, {.model = model, .precision = Precision::bf16});

    const StepResult expected = in_fp32.run();
    const StepResult result = in_16_bits.run();

    // Flipped ReLUs matter more than the roundings themselves, and batch norms of random weights
    // amplify both. The conformance suite has the precise tolerances.
    const double difference = relative_difference(in_16_bits.gradients(), in_fp32.gradients());
    BOOST_TEST(difference < 0.3);
    BOOST_TEST(difference > 1e-4);  // the precision does differ
    BOOST_TEST(std::abs(result.sums.loss - expected.sums.loss) < 0.01 * expected.sums.loss);
  }
}

BOOST_AUTO_TEST_CASE(the_device_engine_trains_like_the_cpu_engine) {
  for (const OptimizerKind optimizer :
       {OptimizerKind::sgd, OptimizerKind::adamw, OptimizerKind::lars, OptimizerKind::lamb}) {
    for (const int accumulate : {1, 2}) {
      // Adam's first steps follow the signs of gradients, which rounding may flip.
      const double lr = traits_of(optimizer).has_moments ? 1e-4 : 0.05;
      Rig cpu(*world,
              {.global_batch = 30, .accumulate = accumulate, .optimizer = optimizer, .lr = lr});
      Rig device(*world, {.global_batch = 30,
                          .accumulate = accumulate,
                          .bucket_bytes = 4096,
                          .clip_grad_norm = 1e6,
                          .optimizer = optimizer,
                          .lr = lr,
                          .device = true});
      for (int step = 0; step < 3; ++step) {
        const StepResult expected = cpu.run();
        const StepResult result = device.run();
        BOOST_TEST(result.sums.loss == expected.sums.loss, boost::test_tools::tolerance(1e-3));
      }
      BOOST_TEST(relative_difference(device.statistics(), cpu.statistics()) < 1e-2);
      BOOST_TEST(same_on_all_ranks(*world, device.bits()));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_device_engine_reduces_norms_and_gradients_like_the_cpu_engine) {
  for (const bool synchronised : {false, true}) {
    for (const ElementType dtype : {ElementType::f32, ElementType::bf16, ElementType::f16}) {
      const Rig::Options options{.global_batch = 30,
                                 .accumulate = 2,
                                 .bucket_bytes = 4096,
                                 .reduce_dtype = dtype,
                                 .synchronised = synchronised};
      Rig::Options on_device = options;
      on_device.device = true;
      Rig cpu(*world, options);
      Rig device(*world, on_device);
      const StepResult expected = cpu.run();
      const StepResult result = device.run();
      BOOST_TEST(result.sums.loss == expected.sums.loss, boost::test_tools::tolerance(1e-4));
      // A ReLU that rounding flips changes a gradient of few samples by about 1%.
      BOOST_TEST(relative_difference(device.gradients(), cpu.gradients()) < 0.05);
      BOOST_TEST(relative_difference(device.statistics(), cpu.statistics()) < 1e-4);
    }
  }
}

BOOST_AUTO_TEST_CASE(scaled_losses_in_fp16_train_like_fp32) {
  for (const double clip : {0.0, 0.5}) {
    Rig in_fp32(*world, {.clip_grad_norm = clip, .device = true});
    Rig half(*world, {.clip_grad_norm = clip,
                      .precision = Precision::fp16,
                      .device = true,
                      .loss_scale = LossScale{.scale = 1024}});
    const std::vector<float> start = in_fp32.parameters();
    for (int step = 0; step < 3; ++step) {
      const double expected = in_fp32.run().sums.loss;
      const StepResult result = half.run();
      BOOST_TEST(!result.overflowed);
      BOOST_TEST(result.sums.loss == expected, boost::test_tools::tolerance(0.01));
    }
    std::vector<float> moved = in_fp32.parameters();
    std::vector<float> moved_half = half.parameters();
    for (std::size_t i = 0; i < start.size(); ++i) {
      moved[i] -= start[i];
      moved_half[i] -= start[i];
    }
    BOOST_TEST(relative_difference(moved_half, moved) < 0.2);
    BOOST_TEST(half.scaler().state()->good_steps == 3);
  }
}

BOOST_AUTO_TEST_CASE(a_step_that_overflows_changes_only_the_loss_scale) {
  for (const OptimizerKind optimizer : {OptimizerKind::sgd, OptimizerKind::adam}) {
    Rig rig(*world, {.optimizer = optimizer,
                     .precision = Precision::fp16,
                     .device = true,
                     .loss_scale = LossScale{.scale = 0x1p30}});
    const std::vector<float> parameters = rig.parameters();
    const std::vector<float> statistics = rig.statistics();
    int skipped = 0;
    while (rig.run().overflowed) {
      ++skipped;
      BOOST_REQUIRE(skipped < 40);
      BOOST_TEST((rig.parameters() == parameters));
      BOOST_TEST((rig.statistics() == statistics));
      BOOST_TEST(rig.scaler().scale() == std::ldexp(0x1p30, -skipped));
    }
    BOOST_TEST(skipped > 0);
    BOOST_TEST((rig.parameters() != parameters));
    BOOST_TEST((rig.statistics() != statistics));
    BOOST_TEST(rig.scaler().state()->skipped_steps == skipped);
    BOOST_TEST(rig.scaler().updates(skipped + 1) == 1);
  }
}

BOOST_AUTO_TEST_CASE(the_same_run_twice_gives_the_same_bits) {
  Rig first(*world, {.global_batch = 29});
  Rig second(*world, {.global_batch = 29});
  for (int step = 0; step < 4; ++step) {
    const double loss = first.run().sums.loss;
    BOOST_TEST(second.run().sums.loss == loss);
  }
  BOOST_TEST(first.bits() == second.bits());
}

BOOST_AUTO_TEST_CASE(gradients_without_batch_norm_do_not_depend_on_the_number_of_ranks) {
  const auto self = make_self_communicator();
  Rig alone(*self, {.model = "simple-cnn"});
  Rig together(*world, {.model = "simple-cnn"});

  const StepResult expected = alone.run();
  const StepResult result = together.run();

  BOOST_TEST(relative_difference(together.gradients(), alone.gradients()) < rounding);
  BOOST_TEST(std::abs(result.sums.loss - expected.sums.loss) < 1e-5 * expected.sums.loss);
  BOOST_TEST((result.sums.metrics == expected.sums.metrics));
  BOOST_TEST(result.sums.samples == 64);
}

BOOST_AUTO_TEST_CASE(accumulation_equals_one_larger_batch) {
  const auto self = make_self_communicator();
  for (const int accumulate : {2, 3}) {
    Rig accumulated(*world, {.model = "simple-cnn", .global_batch = 61, .accumulate = accumulate});
    Rig fresh(*self, {.model = "simple-cnn", .global_batch = 61});
    fresh.run();
    accumulated.run();
    BOOST_TEST(relative_difference(accumulated.gradients(), fresh.gradients()) < rounding);
  }
}

BOOST_AUTO_TEST_CASE(gradients_with_batch_norm_use_per_rank_statistics) {
  Rig together(*world, {.global_batch = 37});
  // Oracle: one engine runs each rank's micro-batch in turn and adds up the gradients.
  Rig oracle(*world, {.global_batch = 37});
  Engine& engine = oracle.engine();
  const BatchGeometry& geometry = oracle.geometry();
  std::vector<double> statistics(engine.running_statistics().size(), 0.0);
  for (int rank = 0; rank < geometry.world_size; ++rank) {
    BatchGeometry theirs = geometry;
    theirs.rank = rank;
    const auto loader = make_loader(oracle.data(),
                                    {.image = image_shape(engine.graph().input_shape()),
                                     .format = engine.input_format(),
                                     .mean = {0.5F, 0.5F, 0.5F},
                                     .std = {0.25F, 0.25F, 0.25F},
                                     .augment = Augment::crop_flip,
                                     .crop_padding = 2,
                                     .seed = 11,
                                     .batch_capacity = theirs.largest_micro_batch(),
                                     .threads = 0},
                                    plan_training_batches(theirs, {}, 1));
    const auto loaded = loader->next();
    const auto program = engine.compile_training(loaded->batch.size);
    program->forward(loaded->batch);
    program->backward({.loss_scale = 1.0F / 37.0F, .accumulate = rank > 0});
    const auto batch_statistics = program->batch_statistics();
    for (std::size_t i = 0; i < statistics.size(); ++i) {
      statistics[i] += batch_statistics[i] * static_cast<double>(loaded->batch.size) / 37.0;
    }
  }
  std::vector<float> running = oracle.statistics();
  for (std::size_t i = 0; i < running.size(); ++i) {
    running[i] = static_cast<float>(0.9 * running[i] + 0.1 * statistics[i]);
  }
  const std::vector<float> gradients = oracle.gradients();

  together.run();

  BOOST_TEST(relative_difference(together.gradients(), gradients) < rounding);
  BOOST_TEST(relative_difference(together.statistics(), running) < rounding);
}

BOOST_AUTO_TEST_CASE(synchronised_batch_norm_does_not_depend_on_the_number_of_ranks) {
  const auto self = make_self_communicator();
  // Accumulates only with a batch whose micro-batches hold the same samples on any number of ranks.
  for (const auto& [global_batch, accumulate, device] :
       {std::tuple<std::int64_t, int, bool>{64, 1, false},
        {37, 1, false},
        {48, 2, false},
        {37, 1, true},
        {48, 2, true}}) {
    // On a single rank, the batch norm sees the whole micro-batch.
    Rig alone(*self, {.global_batch = global_batch, .accumulate = accumulate, .device = device});
    Rig together(*world, {.global_batch = global_batch,
                          .accumulate = accumulate,
                          .bucket_bytes = 20000,
                          .synchronised = true,
                          .device = device});
    alone.run();
    together.run();

    BOOST_TEST(relative_difference(together.gradients(), alone.gradients()) < 10 * rounding);
    BOOST_TEST(relative_difference(together.statistics(), alone.statistics()) < rounding);
  }
}

BOOST_AUTO_TEST_CASE(synchronised_batch_norm_matches_the_losses_of_one_rank_for_20_steps) {
  const auto self = make_self_communicator();
  Rig alone(*self, {.global_batch = 64, .lr = 0.01});
  Rig together(*world, {.global_batch = 64, .lr = 0.01, .synchronised = true});
  for (int step = 0; step < 20; ++step) {
    const double expected = alone.run().sums.loss;
    const double loss = together.run().sums.loss;
    // Rounding differences grow from step to step.
    BOOST_TEST(std::abs(loss - expected) < (step == 0 ? 1e-5 : 2e-3) * expected);
  }
}

BOOST_AUTO_TEST_CASE(an_infinite_loss_is_not_finite_though_its_gradients_are) {
  Rig rig(*world, {.model = "simple-cnn"});
  Engine& engine = rig.engine();
  const auto bias = static_cast<ParameterId>(engine.graph().parameters().size() - 1);
  // A logit of minus infinity: its probability is zero, and so is its gradient's share.
  engine.layout().view_of(bias).in(engine.parameters())[0] =
      -std::numeric_limits<float>::infinity();

  const StepResult result = rig.run();

  BOOST_TEST(std::isinf(result.own_loss));
  BOOST_TEST(result.sums.not_finite == world->size());
  for (const float gradient : rig.gradients()) BOOST_REQUIRE(std::isfinite(gradient));
}

BOOST_AUTO_TEST_CASE(buckets_of_any_size_give_the_same_result) {
  Rig one(*world, {.global_batch = 30, .bucket_bytes = 1e12});
  one.run();
  for (const double bytes : {1.0, 5000.0, 1e5}) {
    Rig many(*world, {.global_batch = 30, .bucket_bytes = bytes});
    many.run();
    // Two summands commute; with more, MPI's order may depend on the message's size.
    if (world->size() <= 2) BOOST_TEST(many.bits() == one.bits());
    BOOST_TEST(relative_difference(many.parameters(), one.parameters()) < rounding);
  }
}

BOOST_AUTO_TEST_CASE(gradients_reduced_in_16_bits_differ_from_fp32_only_by_rounding) {
  Rig in_fp32(*world, {.model = "simple-cnn"});
  const StepResult expected = in_fp32.run();
  for (const auto& [dtype, unit] :
       {std::pair{ElementType::bf16, 0x1p-8}, {ElementType::f16, 0x1p-11}}) {
    Rig in_16_bits(*world, {.model = "simple-cnn", .bucket_bytes = 50000, .reduce_dtype = dtype});
    const StepResult result = in_16_bits.run();

    // fp16 rounds gradients below 2^-14, the subnormals, more; hence the addend.
    const double difference = relative_difference(in_16_bits.gradients(), in_fp32.gradients());
    BOOST_TEST(difference < 3 * world->size() * unit + 1e-4);
    if (world->size() == 1) BOOST_TEST(difference == 0);
    // The tail is in a separate bucket, where a ring adds three or more values in a different
    // order; each sum rounds world_size - 1 times.
    const int additions = world->size() <= 2 ? 0 : world->size() - 1;
    BOOST_TEST(std::abs(result.sums.loss - expected.sums.loss) <=
               2 * additions * 0x1p-24 * expected.sums.loss);
    BOOST_TEST(result.sums.samples == 64);
  }
}

BOOST_AUTO_TEST_CASE(clipping_scales_the_gradients_to_the_given_norm) {
  Rig plain(*world, {.model = "simple-cnn", .global_batch = 16, .clip_grad_norm = 1e9});
  const std::vector<float> start = plain.parameters();
  const double norm = plain.run().gradient_norm;
  BOOST_TEST(norm > 0);
  Rig clipped(*world, {.model = "simple-cnn", .global_batch = 16, .clip_grad_norm = norm / 4});
  clipped.run();
  // The first SGD step changes weights by lr * (g + decay * w); compares the parts along g.
  std::vector<float> moved_plain = plain.parameters();
  std::vector<float> moved_clipped = clipped.parameters();
  double ratio = 0;
  double weight = 0;
  for (std::size_t i = 0; i < start.size(); ++i) {
    const double decay = 0.05 * 1e-4 * start[i];
    const double a = static_cast<double>(start[i]) - moved_plain[i] - decay;
    const double b = static_cast<double>(start[i]) - moved_clipped[i] - decay;
    ratio += a * b;
    weight += a * a;
  }
  BOOST_TEST(std::abs(ratio / weight - 0.25) < 0.001);
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
