#include "run_schedule.hpp"

#include "lockstep/config/options.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/models/models.hpp"

#include <boost/test/unit_test.hpp>

#include <optional>
#include <utility>
#include <vector>

using namespace lockstep;

namespace {

/// Five steps an epoch; two samples of each stay unseen.
constexpr BatchGeometry geometry{.samples = 22, .global_batch = 4};

TrainingState state_at(std::int64_t step, std::int64_t epoch, std::int64_t position) {
  TrainingState state;
  state.step = step;
  state.epoch = epoch;
  state.position = position;
  state.epoch_samples = 8;
  return state;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_epoch_without_another_batch_is_over) {
  BOOST_TEST((before_next_batch(geometry, state_at(4, 0, 16)) == state_at(4, 0, 16)));
  // A batch is exactly what is left.
  BOOST_TEST((before_next_batch(geometry, state_at(4, 0, 18)) == state_at(4, 0, 18)));

  const TrainingState next = before_next_batch(geometry, state_at(4, 0, 19));
  BOOST_TEST(next.epoch == 1);
  BOOST_TEST(next.position == 0);
  BOOST_TEST(next.step == 4);
  BOOST_TEST(next.epoch_samples == 0);
}

BOOST_AUTO_TEST_CASE(a_run_starts_from_its_checkpoint_with_what_it_computes) {
  const Graph graph = make_model(
      "mlp", {.image = {.channels = 1, .height = 4, .width = 4}, .classes = 3, .width = 4});
  Config config;
  config.seed = 7;
  BatchGeometry own = geometry;
  own.world_size = 2;
  const auto start = [&](const std::optional<TrainingState>& from) {
    return starting_state({.config = config, .geometry = own, .data_identity = 5, .graph = graph},
                          from);
  };
  TrainingState stored = state_at(4, 0, 19);
  stored.loss_scale = 64;
  stored.loss_scale_good_steps = 9;
  stored.world_size = 9;
  stored.best_step = 3;

  for (const std::optional<TrainingState>& from : {std::optional<TrainingState>(), {stored}}) {
    const TrainingState state = start(from);
    BOOST_TEST(state.step == (from ? 4 : 0));
    BOOST_TEST(state.epoch == (from ? 1 : 0));
    BOOST_TEST(state.position == 0);
    BOOST_TEST(state.best_step == (from ? 3 : TrainingState().best_step));
    BOOST_TEST(state.world_size == 2);
    BOOST_TEST(state.global_batch == 4);
    BOOST_TEST(state.seed == 7U);
    BOOST_TEST(state.loss_scale == 0);
    BOOST_TEST(state.loss_scale_good_steps == 0);
    BOOST_TEST(state.data_identity == 5U);
    BOOST_TEST(state.model_identity == graph.fingerprint());
    BOOST_TEST(state.model == "mlp");
    BOOST_TEST(state.config == print_config(config));
    BOOST_TEST(state.version == version());
  }
  config.precision = Precision::fp16;
  BOOST_TEST(start(stored).loss_scale == 64);
  BOOST_TEST(start(stored).loss_scale_good_steps == 9);
}

BOOST_AUTO_TEST_CASE(steps_are_counted_to_the_end_of_an_epoch) {
  BOOST_TEST(step_after_epochs(1, geometry, state_at(0, 0, 0)) == 5);
  BOOST_TEST(step_after_epochs(3, geometry, state_at(7, 1, 8)) == 15);
  // With another batch before, the steps so far are not those of this batch.
  BOOST_TEST(step_after_epochs(2, geometry, state_at(30, 1, 15)) == 31);
  BOOST_TEST(step_after_epochs(1, geometry, state_at(5, 1, 0)) == 5);
}

BOOST_AUTO_TEST_CASE(a_run_ends_after_its_epochs_or_steps) {
  Config config;
  config.epochs = 2;
  BOOST_TEST(last_step_of(config, geometry, state_at(0, 0, 0)) == 10);
  config.max_steps = 7;
  BOOST_TEST(last_step_of(config, geometry, state_at(0, 0, 0)) == 7);
  config.max_steps = 12;
  BOOST_TEST(last_step_of(config, geometry, state_at(0, 0, 0)) == 10);
}

BOOST_AUTO_TEST_CASE(replicas_are_averaged_periodically_and_at_epoch_ends) {
  using enum StepSync;
  Config config;
  const auto syncs = [&](TrainingState state, std::int64_t last) {
    std::vector<StepSync> found;
    for (std::int64_t step = state.step + 1; step <= last; ++step) {
      found.push_back(step_sync(config, geometry, state, step));
    }
    return found;
  };
  BOOST_TEST((syncs(state_at(0, 0, 0), 2) == std::vector{gradients, gradients}));
  config.sync_every = 3;
  BOOST_TEST((syncs(state_at(0, 0, 0), 7) ==
              std::vector{local, local, average, local, average, average, local}));
  config.sync_start = 0.5;  // 10 of 20 samples: the first three steps begin before
  BOOST_TEST((syncs(state_at(0, 0, 0), 6) ==
              std::vector{gradients, gradients, gradients, local, average, average}));
  // Of a state in an epoch, the same.
  TrainingState state = state_at(6, 1, 4);
  state.samples = 24;
  BOOST_TEST((syncs(state, 10) == std::vector{local, local, average, average}));
}

BOOST_AUTO_TEST_CASE(the_next_step_with_equal_replicas_is_the_first_one_that_is_not_local) {
  TrainingState in_epoch = state_at(6, 1, 4);
  in_epoch.samples = 24;
  TrainingState other_batch = state_at(30, 1, 15);  // the epoch ends with step 31
  other_batch.samples = 40;
  for (const TrainingState& state : {state_at(0, 0, 0), in_epoch, other_batch}) {
    for (const std::int64_t every : {0, 1, 2, 3, 5, 7, 1000}) {
      for (const double start : {0.0, 0.5, 2.4}) {
        Config config;
        config.sync_every = every;
        config.sync_start = start;
        for (std::int64_t step = state.step + 1; step <= state.step + 20; ++step) {
          std::int64_t expected = step;
          while (step_sync(config, geometry, state, expected) == StepSync::local) ++expected;
          BOOST_TEST(next_equal_step(config, geometry, state, step) == expected);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(rare_averages_do_not_move_the_end_of_an_epoch) {
  Config config;
  config.sync_every = 1'000'000;
  BOOST_TEST(next_equal_step(config, geometry, state_at(0, 0, 0), 1) == 5);
  BOOST_TEST(next_equal_step(config, geometry, state_at(0, 0, 0), 6) == 10);
  config.sync_start = 0.5;
  BOOST_TEST(next_equal_step(config, geometry, state_at(0, 0, 0), 3) == 3);
  BOOST_TEST(next_equal_step(config, geometry, state_at(0, 0, 0), 4) == 5);
}

BOOST_AUTO_TEST_CASE(a_run_ends_with_equal_replicas) {
  Config config;
  config.epochs = 2;
  config.sync_every = 3;
  const auto last = [&](std::int64_t max_steps) {
    config.max_steps = max_steps;
    return last_step_of(config, geometry, state_at(0, 0, 0));
  };
  for (const auto& [asked, expected] :
       {std::pair{1, 3}, {3, 3}, {4, 5}, {7, 9}, {10, 10}, {12, 10}}) {
    BOOST_TEST(last(asked) == expected);
  }
  config.sync_start = 1;
  for (const auto& [asked, expected] : {std::pair{1, 1}, {4, 4}, {7, 9}}) {
    BOOST_TEST(last(asked) == expected);
  }
  // A state beyond the last step has nothing to do.
  config.max_steps = 4;
  BOOST_TEST(last_step_of(config, geometry, state_at(6, 1, 4)) == 4);
}

BOOST_AUTO_TEST_CASE(an_evaluation_waits_for_the_next_average) {
  Config config;
  config.epochs = 9;
  const auto due = [&](std::int64_t step, std::int64_t last_eval_step) {
    TrainingState state = state_at(step, 1, 8);
    state.last_eval_step = last_eval_step;
    return is_evaluation_due(config, 5, state);
  };
  BOOST_TEST(due(5, -1));
  BOOST_TEST(!due(5, 5));
  BOOST_TEST(!due(6, -1));
  BOOST_TEST(!due(0, -1));
  config.sync_every = 4;
  BOOST_TEST(!due(4, -1));
  BOOST_TEST(due(8, -1));  // for step 5
  BOOST_TEST(!due(8, 6));  // step 6 ended an epoch
  BOOST_TEST(due(12, 8));  // for step 10
  BOOST_TEST(!due(12, 10));
}

BOOST_AUTO_TEST_CASE(the_loss_scale_goes_on_from_the_state) {
  Config config;
  TrainingState state;
  state.loss_scale = 64;
  state.loss_scale_good_steps = 9;
  state.skipped_steps = 3;
  BOOST_TEST(!loss_scale_of(config, state).has_value());
  config.precision = Precision::fp16;
  const auto scale = loss_scale_of(config, state);
  BOOST_TEST_REQUIRE(scale.has_value());
  BOOST_TEST(scale->scale == 64);
  BOOST_TEST(scale->good_steps == 9);
  BOOST_TEST(scale->skipped_steps == 3);
  state.loss_scale = 0;  // the run was not in fp16
  BOOST_TEST(loss_scale_of(config, state)->scale == LossScale{}.scale);
  BOOST_TEST(loss_scale_of(config, state)->good_steps == 0);
}
