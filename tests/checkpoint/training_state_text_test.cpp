#include "lockstep/checkpoint/checkpoint.hpp"

#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(a_state_is_parsed_to_the_same_bits) {
  TrainingState state;
  state.step = std::numeric_limits<std::int64_t>::max();
  state.best_step = -1;
  state.epoch_loss = 0.1 + 0.2;
  state.epoch_metrics[0] = -0.0;
  state.data_identity = 0xFFFFFFFFU;
  state.config = "model=resnet18\nlr=0.1\n";
  state.convolutions = "64x8x8 to 64, padding 1: winograd direct direct\n";
  state.all_reduce = "Open MPI 4.1.4, ring";
  state.backend = "oneDNN 2.6.3, avx2";

  const TrainingState found = parse_training_state(training_state_text(state));

  BOOST_TEST((found == state));
  BOOST_TEST(std::signbit(found.epoch_metrics[0]));
}

// The configuration contains paths, which may be any bytes.
BOOST_AUTO_TEST_CASE(text_that_is_not_utf_8_is_parsed_unchanged) {
  TrainingState state;
  state.config = "data=/data/caf\xe9\n";
  state.model = std::string("\x84\0\xff", 3);

  const TrainingState found = parse_training_state(training_state_text(state));

  BOOST_TEST((found == state));
}

BOOST_AUTO_TEST_CASE(sums_that_are_not_finite_are_parsed_unchanged) {
  TrainingState state;
  state.epoch_loss = std::numeric_limits<double>::quiet_NaN();
  state.best_top1 = -std::numeric_limits<double>::infinity();

  const TrainingState found = parse_training_state(training_state_text(state));

  BOOST_TEST(std::isnan(found.epoch_loss));
  BOOST_TEST(found.best_top1 == state.best_top1);
}

BOOST_AUTO_TEST_CASE(missing_and_empty_algorithms_are_distinguished) {
  TrainingState state;
  BOOST_TEST((parse_training_state(training_state_text(state)) == state));

  state.convolutions = "";
  BOOST_TEST((parse_training_state(training_state_text(state)) == state));
}

BOOST_AUTO_TEST_CASE(other_text_is_an_internal_error) {
  BOOST_CHECK_EXCEPTION(static_cast<void>(parse_training_state("not a state")), Error,
                        [](const Error& error) { return error.status() == ExitStatus::internal; });
}
