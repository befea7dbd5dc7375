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

/// Counts the calls that let collectives progress.
class CountingExchange final : public UnitExchange {
 public:
  void start_reduction(std::size_t, std::span<const float>) override {}
  void await_reduction(std::size_t) override {}
  void progress() override { ++calls; }
  void await(FunctionRef<bool()>) override {}
  int calls = 0;
};

/// Five steps.
struct Fixture {
  std::unique_ptr<Device> device = make_host_device();
  std::vector<Seen> seen;
  std::vector<Step> steps;
  std::vector<std::size_t> offsets;

  Fixture() {
    for (int i = 0; i < 5; ++i) {
      steps.push_back({.name = "step", .run = [this, i](const LaunchContext& context) {
                         const Seen arguments{i, context.samples, context.accumulate};
                         run_in(context.stream(), [=, this] { seen.push_back(arguments); });
                       }});
    }
  }
  LaunchContext launch_context(std::int64_t samples, bool accumulate, bool reduces = false) {
    return {.device = *device,
            .base = nullptr,
            .offsets = offsets,
            .targets = {},
            .dropped = {},
            .stored = nullptr,
            .samples = samples,
            .accumulate = accumulate,
            .reduces = reduces};
  }
  /// Runs all steps once and returns the arguments they ran with.
  std::vector<Seen> run(RecordedSteps& recorded, std::int64_t samples, bool accumulate) {
    seen.clear();
    recorded.run(launch_context(samples, accumulate), nullptr);
    return seen;
  }
};

std::vector<Seen> all_with(std::int64_t samples, bool accumulate) {
  std::vector<Seen> result;
  for (int i = 0; i < 5; ++i) result.push_back({i, samples, accumulate});
  return result;
}

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
  std::vector<Targets> targets;
  std::vector<DroppedBlocks> dropped;
  fixture.steps = {{.name = "step", .run = [&](const LaunchContext& context) {
                      run_in(context.stream(),
                             [&, given = context.targets, drops = context.dropped] {
                               targets.push_back(given);
                               dropped.push_back(drops);
                             });
                    }}};
  RecordedSteps recorded(*fixture.device, fixture.steps, true);
  const ImageMix mix{};
  const std::uint64_t mask = 0;

  for (int repeat = 0; repeat < 3; ++repeat) {
    for (const ImageMix* const mixes : {&mix, static_cast<const ImageMix*>(nullptr)}) {
      for (const std::uint64_t* const masks : {&mask, static_cast<const std::uint64_t*>(nullptr)}) {
        LaunchContext context = fixture.launch_context(1, false);
        context.targets.mixes = mixes;
        context.dropped.masks = masks;
        targets.clear();
        dropped.clear();
        recorded.run(context, nullptr);
        BOOST_TEST_REQUIRE(targets.size() == 1U);
        BOOST_TEST((targets[0] == context.targets));
        BOOST_TEST((dropped[0] == context.dropped));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(the_reductions_of_the_last_micro_step_run_between_recordings) {
  for (const bool records : {true, false}) {
    Fixture fixture;
    fixture.steps[2].collective = true;
    fixture.steps[2].in_last_micro_step = true;
    RecordedSteps recorded(*fixture.device, fixture.steps, records);
    for (int repeat = 0; repeat < 3; ++repeat) {
      for (const bool reduces : {false, true}) {
        CountingExchange exchange;
        fixture.seen.clear();
        recorded.run(fixture.launch_context(1, false, reduces), &exchange);

        std::vector<Seen> expected = all_with(1, false);
        if (!reduces) std::erase_if(expected, [](const Seen& seen) { return seen.step == 2; });
        BOOST_TEST((fixture.seen == expected));
        const bool replays = records && repeat > 0;
        BOOST_TEST(exchange.calls == (reduces ? (replays ? 3 : 5) : (replays ? 1 : 4)));
      }
    }
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
  CountingExchange exchange;
  std::array<std::int64_t, 5> shortest;  // of all rounds, because a step may lose its core in one
  shortest.fill(std::numeric_limits<std::int64_t>::max());
  for (int round = 0; round < 3; ++round) {
    timer.told.clear();
    exchange.calls = 0;
    const std::int64_t before = clock_now();
    recorded.run(fixture.launch_context(1, false), &exchange, {.timeline = &timeline});
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
    BOOST_TEST(exchange.calls == 5);
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
