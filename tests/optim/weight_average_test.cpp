#include "lockstep/optim/weight_average.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/optim/optimizer.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <limits>
#include <vector>

using namespace lockstep;

namespace {

constexpr std::int64_t batch = 8;
constexpr std::int64_t epoch_samples = 10 * batch;

/// Decays of the updates 1, 2, ..., one a step, without skipped steps.
std::vector<double> decays(const Config& config, std::int64_t updates) {
  const EmaSchedule schedule(config, epoch_samples, batch);
  std::vector<double> result;
  for (std::int64_t update = 1; update <= updates; ++update) {
    result.push_back(schedule.decay(update, (update - 1) * batch));
  }
  return result;
}

/// torchvision's loop: `n_averaged` is reset in warm-up, and an update copies if it is 0.
std::vector<double> torchvisions(const Config& config, std::int64_t updates) {
  std::vector<double> result;
  std::int64_t n_averaged = 0;
  for (std::int64_t i = 0; i < updates; ++i) {
    if (i % config.ema_every != 0) {
      result.push_back(EmaSchedule::unchanged);
      continue;
    }
    result.push_back(n_averaged == 0 ? EmaSchedule::copied : config.ema_decay);
    ++n_averaged;
    const std::int64_t epoch = i * batch / epoch_samples;
    if (static_cast<double>(epoch) < config.warmup_epochs) n_averaged = 0;
  }
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(updates_are_those_of_torchvision) {
  for (const std::int64_t every : {1, 2, 5}) {
    for (const double warmup : {0.0, 1.0, 2.0}) {
      Config config;
      config.ema_decay = 0.9;
      config.ema_every = every;
      config.warmup_epochs = warmup;

      BOOST_TEST(decays(config, 40) == torchvisions(config, 40), boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(the_first_update_copies_though_steps_before_it_were_skipped) {
  Config config;
  config.ema_decay = 0.9;
  const EmaSchedule schedule(config, epoch_samples, batch);

  BOOST_TEST(schedule.decay(1, 5 * batch) == EmaSchedule::copied);
  BOOST_TEST(schedule.decay(2, 6 * batch) == 0.9);
}

BOOST_AUTO_TEST_CASE(no_update_without_a_decay) {
  for (const double decay : decays(Config{}, 5)) BOOST_TEST(decay == EmaSchedule::unchanged);
}

BOOST_AUTO_TEST_CASE(an_average_is_one_more_slot_and_changes_no_update) {
  const ArenaLayout layout{
      {{.parameter = 0, .kind = ParameterKind::bias, .offset = 0, .size = 12},
       {.parameter = 1, .kind = ParameterKind::weight, .offset = 16, .size = 36}}};
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw,
                                   OptimizerKind::lars, OptimizerKind::lamb, OptimizerKind::lion}) {
    BOOST_TEST_CONTEXT("optimizer " << static_cast<int>(kind)) {
      Config config;
      config.optimizer = kind;
      const auto plain = make_optimizer(config, layout);
      const std::size_t slots = slot_count(config);
      config.ema_decay = 0.9;
      const auto averaging = make_optimizer(config, layout);
      std::vector<float> parameters(layout.size(), 1);
      std::vector<float> same = parameters;
      const std::vector<float> gradients(layout.size(), 0.5F);
      std::vector<float> average(layout.size());

      for (int step = 1; step <= 3; ++step) {
        const double decay = step == 1 ? EmaSchedule::copied : 0.9;
        plain->update(0, layout.size(), parameters, gradients, {.lr = 0.1, .step = step});
        // A range may include the tail behind the parameters.
        averaging->update(0, layout.size() + 24, same, gradients,
                          {.lr = 0.1, .step = step, .ema_decay = decay});
        update_average(average, parameters, decay);
      }

      BOOST_TEST(averaging->name() == plain->name());
      BOOST_TEST(averaging->needs_all_gradients() == plain->needs_all_gradients());
      BOOST_TEST(slot_count(config) == slots + 1);
      BOOST_TEST(averaging->slot_names().size() == slots + 1);
      BOOST_TEST(averaging->slot_names().back() == ema_slot);
      BOOST_TEST(same == parameters, boost::test_tools::per_element());
      for (std::size_t i = 0; i < slots; ++i) {
        BOOST_TEST(averaging->slot_names()[i] == plain->slot_names()[i]);
        BOOST_TEST(averaging->slot(i) == plain->slot(i), boost::test_tools::per_element());
      }
      BOOST_TEST(averaging->slot(slots) == average, boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(averages_are_rounded_as_in_pytorch) {
  std::vector<float> average{1, 2, -3, 0.1F};
  const std::vector<float> values{2, -1, 0.3F, 0.7F};
  std::vector<float> expected;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float kept = 0.999F * average[i];
    const float added = static_cast<float>(1 - 0.999) * values[i];
    expected.push_back(kept + added);
  }

  update_average(average, values, 0.999);

  BOOST_TEST(average == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_copy_ignores_the_average) {
  std::vector<float> average(3, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> values{2, -0.0F, 0.3F};

  update_average(average, values, EmaSchedule::copied);

  BOOST_TEST(average == values, boost::test_tools::per_element());
}
