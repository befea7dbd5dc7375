#include "engine/gpu/host_device.hpp"

#include "engine/gpu/child_process.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep::gpu;

namespace {

constexpr ConvolutionShape shape{.batch = 1,
                                 .height = 3,
                                 .width = 3,
                                 .in_channels = 8,
                                 .out_channels = 8,
                                 .kernel = 1,
                                 .padding = 0,
                                 .type = DataType::f32};

/// A device with some memory, objects, and values on the host.
struct Fixture {
  std::unique_ptr<Device> device = make_host_device(HostWork::late);
  DeviceArray<float> values{*device, 64};
  DeviceArray<float> others{*device, 64};
  DeviceArray<std::byte> workspace{*device, 4096};
  DeviceArray<float> pinned{*device, 64, MemoryPlace::host};
  std::unique_ptr<Event> event = device->make_timed_event();
  std::unique_ptr<Convolution> convolution =
      device->make_convolution(shape, ConvolutionPasses::all);

  void add_values() {
    add(device->stream(), DataType::f32, values.data(), values.data(), others.data(), 64);
  }
  void convolve() {
    convolution->forward(x.data(), weights.data(), y.data(), workspace.data());
  }
  DeviceArray<float> x{*device, 72};
  DeviceArray<float> weights{*device, 64};
  DeviceArray<float> y{*device, 72};
};

/// Whether `work` throws a logic_error that contains `text`.
bool violates(const std::string& text, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::logic_error& error) {
    const bool found = std::string(error.what()).find(text) != std::string::npos;
    BOOST_TEST(found, error.what() << " does not contain " << text);
    return found;
  }
  return false;
}

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_capture_forbids_what_does_not_queue_work, Fixture) {
  std::unique_ptr<Replay> replay = device->record([] {});
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"Device::allocate", [&] { (void)device->allocate(8); }},
      {"Device::allocate_exchanged", [&] { (void)device->allocate_exchanged(8); }},
      {"Device::allocate_host", [&] { (void)device->allocate_host(8); }},
      {"Device::synchronize", [&] { device->synchronize(); }},
      {"Device::make_event", [&] { (void)device->make_event(); }},
      {"Device::make_timed_event", [&] { (void)device->make_timed_event(); }},
      {"Device::mark", [&] { device->mark(*event, Device::Queue::work); }},
      {"Device::queue_wait", [&] { device->queue_wait(Device::Queue::work, *event); }},
      {"Device::wait", [&] { device->wait(*event); }},
      {"Device::has_reached", [&] { (void)device->has_reached(*event); }},
      {"Device::transfer_to_device",
       [&] { device->transfer_to_device(values.data(), pinned.data(), 8); }},
      {"Device::make_convolution",
       [&] { (void)device->make_convolution(shape, ConvolutionPasses::all); }},
      {"Device::fastest_algorithm", [&] { (void)device->fastest_algorithm({.shape = shape}); }},
      {"Device::synchronize", [&] { (void)device->time([] {}); }},
      {"Replay::queue", [&] { replay->queue(); }},
      {"another capture", [&] { (void)device->record([] {}); }}};
  for (const auto& [name, call] : calls) {
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(violates(name + " during a capture", [&] { (void)device->record(call); }));
      call();  // allowed again
    }
  }
}

BOOST_FIXTURE_TEST_CASE(a_release_during_a_capture_ends_the_program, Fixture) {
  for (const MemoryPlace place : {MemoryPlace::device, MemoryPlace::exchanged, MemoryPlace::host}) {
    const ProcessEnd end = run_in_child([&] {
      std::optional<DeviceArray<float>> memory(std::in_place, *device, 8, place);
      (void)device->record([&] { memory.reset(); });
    });

    BOOST_TEST(end.signal == SIGABRT);
    BOOST_TEST(end.errors.find("Device::release") == 0U, end.errors);
  }
}

BOOST_FIXTURE_TEST_CASE(what_is_captured_has_run_once, Fixture) {
  const auto record_sum = [&] { (void)device->record([&] { add_values(); }); };
  const auto record_convolution = [&] { (void)device->record([&] { convolve(); }); };
  BOOST_TEST(violates("a first run during a capture", record_sum));
  BOOST_TEST(violates("a pass of a convolution", record_convolution));

  add_values();
  convolve();
  record_sum();
  record_convolution();
  convolution = device->make_convolution(shape, ConvolutionPasses::all);

  BOOST_TEST(violates("a pass of a convolution", record_convolution));
}

BOOST_FIXTURE_TEST_CASE(recorded_work_runs_with_its_recorded_arguments, Fixture) {
  for (const HostWork when : {HostWork::at_once, HostWork::late}) {
    const auto other = make_host_device(when);
    DeviceArray<float> memory(*other, 2);
    float value = 3;
    const auto replay = other->record([&] {
      other->clear(memory.data(), 8);
      other->copy_to_device(memory.data() + static_cast<int>(value) - 3, &value, sizeof(value));
    });
    value = 4;

    replay->queue();
    std::array<float, 2> got{};
    other->copy_to_host(got.data(), memory.data(), 8);
    other->synchronize();

    BOOST_TEST((got == std::array<float, 2>{4, 0}));
  }
}

BOOST_FIXTURE_TEST_CASE(destroyed_objects_cannot_be_used, Fixture) {
  Event& dangling = *event;
  event.reset();
  BOOST_TEST(violates("an event is used", [&] { device->wait(dangling); }));
  BOOST_TEST(violates("an event", [&] { device->mark(dangling, Device::Queue::work); }));
  BOOST_TEST(violates("an event", [&] { device->queue_wait(Device::Queue::work, dangling); }));
  BOOST_TEST(violates("an event", [&] { (void)device->has_reached(dangling); }));

  convolve();
  device->synchronize();
  const std::unique_ptr<Replay> replay = device->record([&] { convolve(); });
  replay->queue();
  device->synchronize();
  convolution.reset();
  replay->queue();
  BOOST_TEST(violates("a convolution is used", [&] { device->synchronize(); }));

  auto other = make_host_device();
  const std::unique_ptr<Replay> left = other->record([] {});
  other.reset();
  BOOST_TEST(violates("the stream of a recording", [&] { left->queue(); }));
}

BOOST_FIXTURE_TEST_CASE(times_are_those_of_reached_events, Fixture) {
  const auto end = device->make_timed_event();
  device->mark(*event, Device::Queue::work);
  device->mark(*end, Device::Queue::work);
  BOOST_TEST(violates("has not reached", [&] { (void)device->seconds_between(*event, *end); }));
  device->wait(*end);
  BOOST_TEST(device->seconds_between(*event, *end) >= 0);
  device->mark(*end, Device::Queue::work);
  BOOST_TEST(violates("has not reached", [&] { (void)device->seconds_between(*event, *end); }));
}

BOOST_FIXTURE_TEST_CASE(copies_have_the_sides_that_their_names_say, Fixture) {
  std::array<float, 64> there{};
  BOOST_TEST(violates("is not device memory",
                      [&] { device->copy_to_device(there.data(), there.data(), 8); }));
  BOOST_TEST(violates("is device memory",
                      [&] { device->copy_to_device(values.data(), others.data(), 8); }));
  BOOST_TEST(violates("is not device memory",
                      [&] { device->copy_to_host(there.data(), pinned.data(), 8); }));
  BOOST_TEST(violates("is device memory",
                      [&] { device->copy_to_host(values.data(), others.data(), 8); }));
  BOOST_TEST(violates("260 bytes from byte 0",
                      [&] { device->copy_on_device(values.data(), others.data(), 260); }));
  BOOST_TEST(violates("256 bytes from byte 4", [&] { device->clear(values.data() + 1, 256); }));
}

BOOST_FIXTURE_TEST_CASE(memory_is_released_as_it_was_allocated, Fixture) {
  const auto ends = [&](const std::string& text, const std::function<void()>& work) {
    const ProcessEnd end = run_in_child(work);
    BOOST_TEST(end.signal == SIGABRT);
    BOOST_TEST(end.errors.find(text) != std::string::npos, end.errors);
  };
  ends("not allocated", [&] { device->release(values.data() + 1, 256); });
  ends("is released as", [&] { device->release(values.data(), 128); });
  ends("is released as", [&] { device->release_exchanged(values.data(), 256); });
  ends("is released as", [&] { device->release_host(values.data()); });
}

BOOST_AUTO_TEST_CASE(only_queued_work_may_access_guarded_memory) {
  const auto touch = [](const std::function<void(Device&, float*)>& access) {
    return run_in_child([&] {
      for (const HostWork when : {HostWork::late, HostWork::at_once}) {
        const auto device = make_host_device(when, HostMemoryGuard::on);
        const DeviceArray<float> first(*device, 1000);
        DeviceArray<float> second(*device, 20);
        device->clear(second.data(), second.bytes());
        access(*device, second.data());
      }
    });
  };
  const auto is_named = [](const ProcessEnd& end, const std::string& text) {
    BOOST_TEST(end.signal == SIGSEGV);
    BOOST_TEST(end.errors.find(text) == 0U, end.errors);
  };
  volatile float sink = 0;

  is_named(touch([&](Device&, const float* values) { sink = values[3]; }),
           "byte 12 of allocation 2 (80 bytes of device memory) is accessed outside");
  is_named(touch([&](Device& device, float* values) {
             device.synchronize();
             values[0] = 1;
           }),
           "byte 0 of allocation 2");
  is_named(touch([&](Device& device, const float*) {
             float* released = nullptr;
             {
               const DeviceArray<float> memory(device, 8, MemoryPlace::exchanged);
               released = memory.data();
             }
             add(device.stream(), DataType::f32, released, released, released, 8);
             device.synchronize();
           }),
           "byte 0 of allocation 3 (32 bytes of device memory for communication, released)");
  const ProcessEnd fine = touch([&](Device& device, float* values) {
    std::array<float, 20> host{};
    add(device.stream(), DataType::f32, values, values, values, 20);
    device.copy_to_host(host.data(), values, 80);
    device.synchronize();
    if (host[7] != 0) std::abort();
  });
  BOOST_TEST(fine.signal == 0, fine.errors);
}

BOOST_FIXTURE_TEST_CASE(misaligned_accesses_of_kernels_end_the_program, Fixture) {
  const ProcessEnd end = run_in_child([&] {
    add(device->stream(), DataType::f32, values.data() + 1, values.data(), others.data(), 8);
    device->synchronize();
  });

  BOOST_TEST(end.signal == SIGABRT);
  BOOST_TEST(end.errors.find("a kernel accesses 16 bytes") == 0U, end.errors);
}
