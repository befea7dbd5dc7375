#include <boost/test/unit_test.hpp>

#include "lockstep/checkpointing/save_schedule.hpp"

#include <cmath>

using lockstep::SaveSchedule;

namespace {

constexpr int first_steps = 3;  // are not counted
constexpr double hour = 3600;
const auto exactly = boost::test_tools::tolerance(1e-12);

/// A save that pauses training for `paused` seconds while `steps` steps of `step` seconds run.
void save(SaveSchedule& schedule, double paused, int steps = 0, double step = 0) {
  schedule.begin(paused);
  for (int i = 0; i < steps; ++i) schedule.step_took(step);
  schedule.end();
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_interval_is_young_s_of_the_measured_cost) {
  SaveSchedule schedule(1011 * hour);
  BOOST_TEST(!schedule.cost());

  save(schedule, 0.02);

  BOOST_TEST(*schedule.cost() == 0.02, exactly);
  BOOST_TEST(schedule.interval() == std::sqrt(2 * 0.02 * 1011 * hour), exactly);
}

BOOST_AUTO_TEST_CASE(no_other_interval_loses_less_time) {
  constexpr double failure = 8 * hour;
  constexpr double cost = 0.5;
  SaveSchedule schedule(failure);
  save(schedule, cost);
  // Saves delay training, and each failure loses half an interval.
  const auto lost = [](double interval) { return cost / interval + interval / 2 / failure; };

  for (const double factor : {0.5, 0.9, 1.1, 2.0}) {
    BOOST_TEST(lost(schedule.interval()) < lost(factor * schedule.interval()));
  }
}

BOOST_AUTO_TEST_CASE(the_interval_is_never_shorter_than_a_minute) {
  SaveSchedule schedule(hour);

  save(schedule, 1e-3);

  BOOST_TEST(schedule.interval() == 60);
}

BOOST_AUTO_TEST_CASE(before_a_save_is_measured_the_interval_is_at_most_ten_minutes) {
  BOOST_TEST(SaveSchedule(1011 * hour).interval() == 600);
  BOOST_TEST(SaveSchedule(8 * hour).interval() < 600);
  BOOST_TEST(SaveSchedule(60).interval() == 60);
}

BOOST_AUTO_TEST_CASE(the_cost_includes_pauses_and_slower_steps) {
  SaveSchedule schedule(hour);
  for (int i = 0; i < first_steps; ++i) schedule.step_took(10);
  for (int i = 0; i < 20; ++i) schedule.step_took(i % 2 == 0 ? 0.09 : 0.11);

  schedule.begin(0.3);
  for (int i = 0; i < 10; ++i) schedule.step_took(0.12);
  schedule.end();

  BOOST_TEST(*schedule.cost() == 0.3 + 10 * (0.12 - 0.1), exactly);
}

BOOST_AUTO_TEST_CASE(faster_steps_beside_a_save_do_not_reduce_the_cost) {
  SaveSchedule schedule(hour);
  for (int i = 0; i < 20; ++i) schedule.step_took(0.1);

  save(schedule, 0.3, 10, 0.01);

  BOOST_TEST(*schedule.cost() == 0.3, exactly);
}

BOOST_AUTO_TEST_CASE(steps_that_vary_alike_with_and_without_saves_cost_nothing) {
  SaveSchedule schedule(hour);
  for (int i = 0; i < 20; ++i) schedule.step_took(0.1);

  for (const double step : {0.14, 0.06, 0.13, 0.05, 0.1}) save(schedule, 0.3, 10, step);

  BOOST_TEST(*schedule.cost() == 0.3, exactly);
}

BOOST_AUTO_TEST_CASE(too_few_other_steps_tell_nothing_of_the_steps_beside_a_save) {
  SaveSchedule schedule(hour);
  for (int i = 0; i < first_steps + 7; ++i) schedule.step_took(0.1);

  save(schedule, 0.3, 10, 0.5);

  BOOST_TEST(*schedule.cost() == 0.3, exactly);
}

BOOST_AUTO_TEST_CASE(one_disturbed_save_does_not_change_the_cost) {
  SaveSchedule schedule(hour);
  for (const double paused : {0.1, 0.2, 30.0, 0.2, 0.3}) save(schedule, paused);

  BOOST_TEST(*schedule.cost() == 0.2, exactly);

  for (int i = 0; i < 3; ++i) save(schedule, 1);
  BOOST_TEST(*schedule.cost() == 1, exactly);
}

BOOST_AUTO_TEST_CASE(saves_at_epoch_ends_take_at_most_one_percent_of_the_time) {
  SaveSchedule schedule(hour);
  BOOST_TEST(schedule.epoch_end_interval() == 0);

  save(schedule, 0.5);
  BOOST_TEST(schedule.epoch_end_interval() == 50, exactly);

  for (int i = 0; i < 5; ++i) save(schedule, 0.01);
  BOOST_TEST(schedule.epoch_end_interval() == 10);
}
