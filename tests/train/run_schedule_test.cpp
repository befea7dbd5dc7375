#define BOOST_TEST_MODULE run_schedule
#include "run_schedule.hpp"

#include <boost/test/unit_test.hpp>

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
