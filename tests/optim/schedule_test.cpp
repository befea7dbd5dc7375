#include "lockstep/optim/schedule.hpp"
#include "lockstep/config/config.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>

using namespace lockstep;

namespace {

constexpr std::int64_t epoch = 1000;
constexpr std::int64_t batch = 100;
const auto closely = boost::test_tools::tolerance(1e-12);

Config config_of(LrSchedule kind) {
  Config config;
  config.lr_schedule = kind;
  config.epochs = 10;
  config.lr = 0.5;
  return config;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_constant_schedule_does_not_change) {
  const Schedule schedule(config_of(LrSchedule::constant), epoch, batch);

  for (const std::int64_t samples : {0, 100, 5000, 9900, 20000})
    BOOST_TEST(schedule.lr(samples) == 0.5);
}

BOOST_AUTO_TEST_CASE(step_multiplies_at_each_milestone) {
  Config config = config_of(LrSchedule::step);
  config.milestones = {3, 6.5};
  config.lr_gamma = 0.1;
  const Schedule schedule(config, epoch, batch);

  BOOST_TEST(schedule.lr(0) == 0.5, closely);
  BOOST_TEST(schedule.lr(2999) == 0.5, closely);
  BOOST_TEST(schedule.lr(3000) == 0.05, closely);
  BOOST_TEST(schedule.lr(6499) == 0.05, closely);
  BOOST_TEST(schedule.lr(6500) == 0.005, closely);
  BOOST_TEST(schedule.lr(9999) == 0.005, closely);
}

BOOST_AUTO_TEST_CASE(cosine_falls_to_zero_over_all_samples) {
  const Schedule schedule(config_of(LrSchedule::cosine), epoch, batch);

  BOOST_TEST(schedule.lr(0) == 0.5, closely);
  BOOST_TEST(schedule.lr(2500) == 0.25 * (1 + std::sqrt(0.5)), closely);
  BOOST_TEST(schedule.lr(5000) == 0.25, closely);
  BOOST_TEST(std::abs(schedule.lr(10000)) < 1e-15);
  BOOST_TEST(std::abs(schedule.lr(12000)) < 1e-15);
}

// The rates of torch.optim.lr_scheduler.CosineAnnealingLR(optimizer of lr 0.5, T_max=10,
// eta_min=0.02) of PyTorch 1.13.
BOOST_AUTO_TEST_CASE(cosine_falls_to_the_same_rates_as_torchs_with_a_minimum) {
  constexpr double torchs[] = {
      0.5,  0.48825356391083685, 0.45416407864998737, 0.4010684605501936,  0.3341640786499874,
      0.26, 0.18583592135001265, 0.11893153944980649, 0.06583592135001265, 0.03174643608916315,
      0.02};
  Config config = config_of(LrSchedule::cosine);
  config.lr_min = 0.02;
  const Schedule schedule(config, epoch, batch);

  for (std::int64_t i = 0; i <= 10; ++i) {
    BOOST_TEST(schedule.lr(1000 * i) == torchs[i], closely);
  }
  BOOST_TEST(schedule.lr(12000) == 0.02, closely);

  config.warmup_epochs = 2;
  config.epochs = 12;
  for (std::int64_t i = 0; i <= 10; ++i) {
    BOOST_TEST(Schedule(config, epoch, batch).lr(2000 + 1000 * i) == torchs[i], closely);
  }
}

BOOST_AUTO_TEST_CASE(polynomial_falls_with_its_power) {
  Config config = config_of(LrSchedule::polynomial);
  config.lr_power = 3;
  const Schedule schedule(config, epoch, batch);

  BOOST_TEST(schedule.lr(0) == 0.5, closely);
  BOOST_TEST(schedule.lr(5000) == 0.5 * 0.125, closely);
  BOOST_TEST(schedule.lr(10000) == 0.0);
}

BOOST_AUTO_TEST_CASE(warm_up_is_linear_and_its_last_update_has_the_base_rate) {
  for (const LrSchedule kind :
       {LrSchedule::constant, LrSchedule::step, LrSchedule::cosine, LrSchedule::polynomial}) {
    Config config = config_of(kind);
    config.warmup_epochs = 2;
    const Schedule schedule(config, epoch, batch);

    BOOST_TEST(schedule.lr(0) == 0.5 * 100 / 2000, closely);
    BOOST_TEST(schedule.lr(900) == 0.25, closely);
    BOOST_TEST(schedule.lr(1900) == 0.5, closely);
    BOOST_TEST(schedule.lr(1950) == 0.5, closely);  // capped: 1,950 + 100 exceeds the warm-up
    BOOST_TEST(schedule.lr(2000) == 0.5, closely);
  }
}

BOOST_AUTO_TEST_CASE(decay_covers_the_samples_after_warm_up) {
  Config config = config_of(LrSchedule::cosine);
  config.warmup_epochs = 2;
  BOOST_TEST(Schedule(config, epoch, batch).lr(6000) == 0.25, closely);

  config.lr_schedule = LrSchedule::polynomial;
  config.lr_power = 2;
  BOOST_TEST(Schedule(config, epoch, batch).lr(6000) == 0.125, closely);
}

BOOST_AUTO_TEST_CASE(the_base_rate_scales_with_the_global_batch_if_requested) {
  Config config = config_of(LrSchedule::constant);
  config.lr_base_batch = 256;

  BOOST_TEST(Schedule(config, epoch, 1024).lr(0) == 2.0, closely);
  BOOST_TEST(Schedule(config, epoch, 64).lr(0) == 0.125, closely);
}

BOOST_AUTO_TEST_CASE(a_warm_up_as_long_as_training_never_divides_by_zero) {
  Config config = config_of(LrSchedule::cosine);
  config.warmup_epochs = 10;
  const Schedule schedule(config, epoch, batch);

  BOOST_TEST(schedule.lr(9900) == 0.5, closely);
  BOOST_TEST(std::isfinite(schedule.lr(10000)));
}

// The rates of torchvision's references: torch's LinearLR(start_factor=0.01, total_iters=5), then
// CosineAnnealingLR(T_max=10), stepped once an epoch, of PyTorch 1.13.
BOOST_AUTO_TEST_CASE(rates_by_epoch_are_those_of_torchs_schedulers) {
  constexpr double torchs[] = {
      0.005, 0.10399999999999998, 0.20299999999999996, 0.30199999999999994,  0.4009999999999999,
      0.5,   0.4877641290737884,  0.45225424859373686, 0.3969463130731183,   0.32725424859373686,
      0.25,  0.17274575140626316, 0.10305368692688174, 0.047745751406263165, 0.012235870926211617};
  Config config = config_of(LrSchedule::cosine);
  config.epochs = 15;
  config.warmup_epochs = 5;
  config.warmup_lr = 0.005;
  config.lr_update = LrUpdate::epoch;
  const Schedule schedule(config, epoch, batch);

  for (std::int64_t i = 0; i < 15; ++i) {
    for (const std::int64_t samples : {0, 100, 900}) {
      BOOST_TEST(schedule.lr(1000 * i + samples) == torchs[i], closely);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_warm_up_rises_from_its_own_rate) {
  Config config = config_of(LrSchedule::constant);
  config.warmup_epochs = 1;
  config.warmup_lr = 0.1;
  const Schedule schedule(config, epoch, batch);

  for (std::int64_t step = 0; step < 10; ++step) {
    BOOST_TEST(schedule.lr(100 * step) == 0.1 + 0.04 * static_cast<double>(step + 1), closely);
  }
  BOOST_TEST(schedule.lr(1000) == 0.5, closely);
}
