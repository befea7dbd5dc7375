#include "../../../src/engine/gpu/recorded_steps.hpp"

#include "engine/gpu/host_device.hpp"
#include "run_in.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

/// The arguments that a step ran with.
struct Seen {
  int step;
  std::int64_t samples;
  bool accumulate;
  friend bool operator==(const Seen&, const Seen&) = default;
};

class StoringObserver final : public BackwardObserver {
 public:
  explicit StoringObserver(std::vector<std::size_t> boundaries)
      : boundaries_(std::move(boundaries)) {}
  void gradients_ready(std::size_t filled) override { told.push_back(filled); }
  [[nodiscard]] std::span<const std::size_t> boundaries() const noexcept override {
    return boundaries_;
  }
  std::vector<std::size_t> told;

 private:
  std::vector<std::size_t> boundaries_;
};

/// Five steps, some of which fill the arena.
struct Fixture {
  std::unique_ptr<Device> device = make_host_device();
  std::vector<Seen> seen;
  std::vector<Step> steps;
  std::vector<std::size_t> offsets;

  Fixture() {
    const std::size_t filled[] = {0, 10, 10, 30, 40};
    for (int i = 0; i < 5; ++i) {
      steps.push_back({.name = "step",
                       .run =
                           [this, i](const LaunchContext& context) {
                             const Seen arguments{i, context.samples, context.accumulate};
                             run_in(context.stream(), [=, this] { seen.push_back(arguments); });
                           },
                       .filled = filled[i]});
    }
  }
  LaunchContext launch_context(std::int64_t samples, bool accumulate) {
    return {.device = *device,
            .base = nullptr,
            .offsets = offsets,
            .labels = {},
            .stored = nullptr,
            .samples = samples,
            .accumulate = accumulate};
  }
  /// Runs all steps once and returns the arguments they ran with.
  std::vector<Seen> run(RecordedSteps& recorded, std::int64_t samples, bool accumulate,
                        BackwardObserver* observer = nullptr) {
    seen.clear();
    recorded.run(launch_context(samples, accumulate), observer);
    return seen;
  }
};

std::vector<Seen> all_with(std::int64_t samples, bool accumulate) {
  std::vector<Seen> result;
  for (int i = 0; i < 5; ++i) result.push_back({i, samples, accumulate});
  return result;
}

using Told = std::vector<std::size_t>;

}  // namespace

BOOST_AUTO_TEST_CASE(every_step_runs_once_per_call_with_the_calls_arguments) {
  Fixture fixture;
  RecordedSteps recorded(*fixture.device, fixture.steps, true);

  // More sets of arguments than there are recordings, each repeated.
  for (int round = 0; round < 4; ++round) {
    for (std::int64_t samples = 1; samples < 6; ++samples) {
      for (const bool accumulate : {false, true}) {
        for (int repeat = 0; repeat < 3; ++repeat) {
          BOOST_TEST((fixture.run(recorded, samples, accumulate) == all_with(samples, accumulate)));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(recordings_are_of_the_same_mixes_and_masks) {
  Fixture fixture;
  std::vector<BatchLabels> seen;
  fixture.steps = {{.name = "step", .run = [&](const LaunchContext& context) {
                      run_in(context.stream(),
                             [&, labels = context.labels] { seen.push_back(labels); });
                    }}};
  RecordedSteps recorded(*fixture.device, fixture.steps, true);
  const ImageMix mix{};
  const std::uint64_t mask = 0;

  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const ImageMix* const mixes : {&mix, static_cast<const ImageMix*>(nullptr)}) {
      for (const std::uint64_t* const masks : {&mask, static_cast<const std::uint64_t*>(nullptr)}) {
        LaunchContext context = fixture.launch_context(1, false);
        context.labels = {.mixes = mixes, .dropped = {.masks = masks}};
        seen.clear();
        recorded.run(context, nullptr);
        BOOST_TEST_REQUIRE(seen.size() == 1U);
        BOOST_TEST(seen[0].mixes == mixes);
        BOOST_TEST(seen[0].dropped.masks == masks);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_observer_is_notified_at_its_boundaries) {
  Fixture fixture;
  RecordedSteps recorded(*fixture.device, fixture.steps, true);
  const auto told_by = [&](std::vector<std::size_t> boundaries) {
    StoringObserver observer(std::move(boundaries));
    (void)fixture.run(recorded, 1, false, &observer);
    return observer.told;
  };

  BOOST_TEST((told_by({10, 30}) == Told{0, 10, 10, 30, 40}));  // not recorded yet: one by one
  BOOST_TEST((told_by({10, 30}) == Told{10, 30, 40}));
  BOOST_TEST((told_by({5, 8, 29}) == Told{0, 10, 10, 30, 40}));
  BOOST_TEST((told_by({5, 8, 29}) == Told{10, 30, 40}));
  BOOST_TEST((told_by({40}) == Told{0, 10, 10, 30, 40}));
  BOOST_TEST((told_by({40}) == Told{40}));
  BOOST_TEST((told_by({}) == Told{0, 10, 10, 30, 40}));
  BOOST_TEST((told_by({}) == Told{40}));
  BOOST_TEST((told_by({10, 30}) == Told{10, 30, 40}));  // its recording is still kept
}

BOOST_AUTO_TEST_CASE(without_recording_an_observer_is_notified_at_each_step) {
  Fixture fixture;
  RecordedSteps recorded(*fixture.device, fixture.steps, false);

  for (int repeat = 0; repeat < 3; ++repeat) {
    StoringObserver observer({40});
    BOOST_TEST((fixture.run(recorded, 1, true, &observer) == all_with(1, true)));
    BOOST_TEST((observer.told == Told{0, 10, 10, 30, 40}));
  }
}

namespace {

/// Stores the reported times.
class StoringTimer final : public StepTimer {
 public:
  struct Told {
    std::string step;
    std::int64_t begin;
    std::int64_t end;
  };
  bool asks = true;
  std::vector<Told> told;
  [[nodiscard]] bool wants() const noexcept override { return asks; }
  void took(std::string_view step, std::int64_t begin, std::int64_t end) override {
    told.push_back({std::string(step), begin, end});
  }
};

std::int64_t clock_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_timeline_reports_when_each_step_ran) {
  Fixture fixture;
  for (std::size_t i = 0; i < fixture.steps.size(); ++i) {
    fixture.steps[i].name = "step " + std::to_string(i);
  }
  fixture.steps[3].run = [](const LaunchContext& context) {
    run_in(context.stream(), [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  };
  RecordedSteps recorded(*fixture.device, fixture.steps, true);
  StoringTimer timer;
  DeviceTimeline timeline;
  BOOST_TEST(!timeline.wants());
  timeline.set_timer(timer);
  StoringObserver observer({10, 30});
  std::array<std::int64_t, 5> shortest;  // of all rounds, because a step may lose its core in one
  shortest.fill(std::numeric_limits<std::int64_t>::max());
  for (int round = 0; round < 3; ++round) {
    timer.told.clear();
    observer.told.clear();
    const std::int64_t before = clock_now();
    recorded.run(fixture.launch_context(1, false), &observer, {.timeline = &timeline});
    BOOST_TEST(timer.told.empty());  // nothing is reported before the device is done
    timeline.report(*fixture.device);
    const std::int64_t after = clock_now();
    BOOST_TEST_REQUIRE(timer.told.size() == 5U);
    std::int64_t last = before;
    for (std::size_t i = 0; i < 5; ++i) {
      const StoringTimer::Told& told = timer.told[i];
      BOOST_TEST(told.step == fixture.steps[i].name);
      BOOST_TEST(last <= told.begin);
      BOOST_TEST(told.begin <= told.end);
      shortest[i] = std::min(shortest[i], told.end - told.begin);
      last = told.end;
    }
    BOOST_TEST(last <= after);
    BOOST_TEST((observer.told == std::vector<std::size_t>{0, 10, 10, 30, 40}));
  }
  for (std::size_t i = 0; i < 5; ++i) BOOST_TEST((shortest[i] >= 20'000'000) == (i == 3));
  timer.told.clear();
  timeline.report(*fixture.device);
  BOOST_TEST(timer.told.empty());
  timer.asks = false;
  BOOST_TEST(!timeline.wants());
}

BOOST_AUTO_TEST_CASE(a_stopwatch_stops_during_collectives) {
  using namespace std::chrono_literals;
  Fixture fixture;
  fixture.steps[1].run = [](const LaunchContext& context) {
    run_in(context.stream(), [] { std::this_thread::sleep_for(20ms); });
  };
  fixture.steps[2].run = [](const LaunchContext& /*context*/) {
    std::this_thread::sleep_for(150ms);
  };
  fixture.steps[2].collective = true;
  RecordedSteps recorded(*fixture.device, fixture.steps, true);
  DeviceStopwatch stopwatch(*fixture.device);

  // One by one, as a recording is made, and as it is replayed.
  for (int run = 0; run < 3; ++run) {
    recorded.run(fixture.launch_context(1, false), nullptr, {.stopwatch = &stopwatch});
    stopwatch.stop_backward();

    const double seconds = stopwatch.take();
    BOOST_TEST(seconds >= 0.020);
    BOOST_TEST(seconds < 0.150);
  }
}
