#include "../../../src/engine/gpu/device_stopwatch.hpp"

#include "engine/gpu/host_device.hpp"
#include "run_in.hpp"

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <thread>

using namespace lockstep::gpu;

namespace {

/// A device whose queued work runs when the host waits for it.
struct Fixture {
  std::unique_ptr<Device> device = make_host_device(HostWork::late);
  DeviceStopwatch stopwatch{*device};

  void queue(std::chrono::milliseconds time) {
    run_in(device->stream(), [time] { std::this_thread::sleep_for(time); });
  }
  void lap(std::chrono::milliseconds time) {
    stopwatch.start();
    queue(time);
    stopwatch.stop();
  }
};

using namespace std::chrono_literals;

}  // namespace

BOOST_FIXTURE_TEST_CASE(laps_until_the_last_backward_are_taken_once, Fixture) {
  lap(10ms);     // forward
  queue(200ms);  // a wait for other ranks
  stopwatch.start();
  queue(20ms);
  stopwatch.stop_backward();
  lap(150ms);  // the next step's forward
  device->synchronize();

  const double first = stopwatch.take();
  const double again = stopwatch.take();
  stopwatch.start();
  stopwatch.stop_backward();
  device->synchronize();
  const double second = stopwatch.take();

  BOOST_TEST(first >= 0.030);
  BOOST_TEST(first < 0.150);
  BOOST_TEST(again == 0);
  BOOST_TEST(second >= 0.150);
}

BOOST_FIXTURE_TEST_CASE(work_that_the_device_has_not_ended_is_not_waited_for, Fixture) {
  stopwatch.start();
  for (int i = 0; i < 5; ++i) queue(40ms);
  stopwatch.stop_backward();
  const auto begin = std::chrono::steady_clock::now();

  const double before = stopwatch.take();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  device->synchronize();
  const double after = stopwatch.take();

  BOOST_TEST(before == 0);
  BOOST_TEST(took.count() < 0.15);  // a query of this device runs one operation
  BOOST_TEST(after >= 0.2);
}

BOOST_FIXTURE_TEST_CASE(a_backward_may_end_without_a_lap, Fixture) {
  lap(10ms);
  stopwatch.stop_backward();
  device->synchronize();
  BOOST_TEST(stopwatch.take() >= 0.010);

  lap(10ms);
  device->synchronize();
  BOOST_TEST(stopwatch.take() == 0);
  stopwatch.stop_backward();
  BOOST_TEST(stopwatch.take() >= 0.010);
}

BOOST_FIXTURE_TEST_CASE(a_running_lap_is_not_begun_again, Fixture) {
  stopwatch.start();
  queue(20ms);
  stopwatch.start();
  queue(1ms);
  stopwatch.stop_backward();
  device->synchronize();

  BOOST_TEST(stopwatch.take() >= 0.021);
}

BOOST_FIXTURE_TEST_CASE(more_laps_than_it_has_events_for_are_reported_as_unknown, Fixture) {
  for (int i = 0; i < 2000; ++i) lap(0ms);
  stopwatch.start();
  stopwatch.stop_backward();
  device->synchronize();
  const double lost = stopwatch.take();
  lap(10ms);
  stopwatch.start();
  stopwatch.stop_backward();
  device->synchronize();

  BOOST_TEST(lost == 0);
  BOOST_TEST(stopwatch.take() >= 0.010);
}
