#include "lockstep/optim/loss_scaler.hpp"

#include <boost/test/unit_test.hpp>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(without_a_scale_nothing_is_scaled_or_skipped) {
  LossScaler scaler(std::nullopt);
  scaler.update(false);

  BOOST_TEST(!scaler.is_dynamic());
  BOOST_TEST(scaler.scale() == 1);
  BOOST_TEST(scaler.updates(7) == 7);
}

BOOST_AUTO_TEST_CASE(an_overflow_halves_the_scale_and_does_not_count_as_an_update) {
  LossScaler scaler(LossScale{});
  scaler.update(true);
  scaler.update(false);

  BOOST_TEST((scaler.state() == LossScale{.scale = 0x1p15, .good_steps = 0, .skipped_steps = 1}));
  BOOST_TEST(scaler.updates(3) == 2);
}

BOOST_AUTO_TEST_CASE(two_thousand_good_steps_in_a_row_double_the_scale_up_to_a_limit) {
  LossScaler scaler(LossScale{.scale = LossScaler::largest_scale / 2, .good_steps = 1999});
  scaler.update(true);
  BOOST_TEST(scaler.scale() == LossScaler::largest_scale);
  for (int i = 0; i < 2000; ++i) scaler.update(true);

  BOOST_TEST(scaler.scale() == LossScaler::largest_scale);
  BOOST_TEST(scaler.state()->good_steps == 0);
}

BOOST_AUTO_TEST_CASE(a_scaler_continues_from_the_state_of_another) {
  LossScaler whole(LossScale{.scale = 1024, .good_steps = 1998});
  LossScaler first(LossScale{.scale = 1024, .good_steps = 1998});
  whole.update(true);
  first.update(true);
  LossScaler second(first.state());
  whole.update(true);
  second.update(true);

  BOOST_TEST((whole.state() == second.state()));
  BOOST_TEST(second.scale() == 2048);
}
