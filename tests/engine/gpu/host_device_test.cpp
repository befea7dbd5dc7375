#include "engine/gpu/host_device.hpp"

#include "../../../src/engine/gpu/kernels/launch.hpp"
#include "engine/gpu/child_process.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
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
  std::unique_ptr<Convolution> convolution = device->convolutions().make(shape, all_passes);

  void add_values() {
    add(device->stream(), DataType::f32, values.data(), values.data(), others.data(), 64);
  }
  void convolve() { convolution->forward(x.data(), weights.data(), y.data(), workspace.data()); }
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

/// Copies the first value of the block before or after to each block, which is right in one order
/// of blocks only.
struct CopyNeighbours {
  std::int64_t* values;
  std::int64_t blocks;
  int distance;
  void operator()(std::int64_t item) const {
    const std::int64_t block = item / threads_per_block;
    const std::int64_t from = block + distance;
    if (item % threads_per_block == 0 && from >= 0 && from < blocks) values[block] = values[from];
  }
};
/// The same with one result of each block of lanes.
struct SumNeighbours {
  struct Partial {
    std::int64_t sum = 0;
    void merge(const Partial& other) { sum += other.sum; }
  };
  CopyNeighbours copy;
  [[nodiscard]] Partial partial(std::int64_t block, int /*column*/, int lane) const {
    const std::int64_t from = std::clamp(block + copy.distance, std::int64_t{0}, copy.blocks - 1);
    return {lane == 0 ? copy.values[from] : 0};
  }
  void finish(std::int64_t block, int /*column*/, const Partial& total) const {
    copy.values[block] = total.sum;
  }
};

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
      {"ConvolutionLibrary::make", [&] { (void)device->convolutions().make(shape, all_passes); }},
      {"ConvolutionLibrary::fastest",
       [&] { (void)device->convolutions().fastest({.shape = shape}); }},
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
  device->synchronize();
  convolution = device->convolutions().make(shape, all_passes);

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
  BOOST_TEST(
      violates("is device memory", [&] { device->copy_to_host(values.data(), others.data(), 8); }));
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

BOOST_AUTO_TEST_CASE(kernels_that_depend_on_an_order_of_blocks_give_wrong_values) {
  constexpr std::int64_t blocks = 20;
  for (const int distance : {-1, 1}) {
    std::vector<std::int64_t> values(blocks);
    std::iota(values.begin(), values.end(), 0);
    std::vector<std::int64_t> moved(values);
    for (std::int64_t& value : moved)
      value = std::clamp(value + distance, std::int64_t{0}, blocks - 1);
    std::vector<std::int64_t> summed(values);

    launch(nullptr, blocks * threads_per_block, CopyNeighbours{values.data(), blocks, distance});
    launch_blocks(nullptr, {.count = blocks, .columns = 1},
                  SumNeighbours{{summed.data(), blocks, distance}});

    BOOST_TEST(values != moved);
    BOOST_TEST(summed != moved);
  }
}

BOOST_AUTO_TEST_CASE(all_items_and_blocks_run_once) {
  for (const std::int64_t count : {0, 1, 2, 7, 12, 255, 256, 257, 2000, 2048}) {
    std::vector<int> items(static_cast<std::size_t>(count));
    std::vector<int> blocks(static_cast<std::size_t>(count));
    struct Count {
      struct Partial {
        int lanes = 0;
        void merge(const Partial& other) { lanes += other.lanes; }
      };
      int* runs;
      void operator()(std::int64_t item) const { ++runs[item]; }
      [[nodiscard]] Partial partial(std::int64_t, int, int) const { return {1}; }
      void finish(std::int64_t block, int, const Partial& total) const {
        runs[block] += total.lanes;
      }
    };

    launch(nullptr, count, Count{items.data()});
    launch_blocks(nullptr, {.count = count, .columns = 64}, Count{blocks.data()});

    BOOST_TEST(std::ranges::count(items, 1) == count);
    BOOST_TEST(std::ranges::count(blocks, 64 * threads_per_block / 64) == count);
  }
}

// Each order of the two queues, as far as events allow.
BOOST_AUTO_TEST_CASE(a_slow_device_transfers_early_and_a_fast_one_late) {
  for (const HostWork when : {HostWork::at_once, HostWork::late}) {
    const bool slow = when == HostWork::late;
    const auto device = make_host_device(when);
    DeviceArray<float> memory(*device, 1);
    DeviceArray<float> host(*device, 1, MemoryPlace::host);
    const auto used = device->make_event();
    const auto transferred = device->make_event();
    float got = 0;
    const auto transfer = [&](float value) {
      *host.data() = value;
      device->transfer_to_device(memory.data(), host.data(), sizeof(float));
    };

    transfer(1);
    *host.data() = 2;  // too early
    device->mark(*transferred, Device::Queue::transfers);
    device->wait(*transferred);
    device->copy_to_host(&got, memory.data(), sizeof(float));
    device->synchronize();
    BOOST_TEST(got == (slow ? 1.0F : 2.0F));

    device->copy_to_host(&got, memory.data(), sizeof(float));
    transfer(3);  // too early
    device->mark(*transferred, Device::Queue::transfers);
    device->wait(*transferred);
    device->synchronize();
    BOOST_TEST(got == (slow ? 3.0F : 2.0F));

    device->copy_to_host(&got, memory.data(), sizeof(float));
    device->mark(*used, Device::Queue::work);
    device->queue_wait(Device::Queue::transfers, *used);
    transfer(4);
    device->mark(*transferred, Device::Queue::transfers);
    if (slow) BOOST_TEST(work_left(*device) == 1U);
    device->wait(*transferred);
    BOOST_TEST(got == 3.0F);
  }
}

BOOST_FIXTURE_TEST_CASE(destroyed_objects_of_the_jpeg_library_cannot_be_used, Fixture) {
  HostJpegLibrary& library = jpeg_library(*device);
  JpegHandle handle = nullptr;
  JpegState state = nullptr;
  BOOST_TEST(
      (library.create(JpegBackend::hybrid, jpeg_interpolates, &handle) == JpegStatus::success));
  BOOST_TEST((library.state_create(handle, &state) == JpegStatus::success));
  const auto initialize = [&] {
    return library.decode_batched_initialize(handle, state, 1, 1, JpegOutput::interleaved_rgb);
  };
  BOOST_TEST((initialize() == JpegStatus::success));
  const std::uint8_t no_file = 0;
  const std::uint8_t* const file = &no_file;
  const std::size_t bytes = 1;
  JpegPlanes planes;
  BOOST_TEST((library.decode_batched(handle, state, {&file, &bytes}, &planes, device->stream()) ==
              JpegStatus::success));

  library.state_destroy(state);
  BOOST_TEST(violates("an nvjpegJpegState_t is used", [&] { device->synchronize(); }));
  BOOST_TEST(violates("an nvjpegJpegState_t is used", [&] { (void)initialize(); }));
  library.destroy(handle);
  BOOST_TEST(violates("an nvjpegHandle_t is used", [&] { (void)initialize(); }));
}
