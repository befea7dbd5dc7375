#include "../../../src/engine/gpu/input_queue.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <stdexcept>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

/// Host memory with two queues. Nothing runs before run_all, where `first` runs ahead of the other
/// queue as far as its waits allow.
class TwoQueues final : public Device {
 public:
  void queue_work(std::function<void()> work) {
    add(Queue::work, {.run = std::move(work), .after = {}});
  }
  void run_all(Queue first) {
    const Queue second = first == Queue::work ? Queue::transfers : Queue::work;
    while (run_next(first) || run_next(second)) {
    }
    if (!line(first).entries.empty() || !line(second).entries.empty()) {
      throw std::logic_error("two queues wait for each other");
    }
  }

  [[nodiscard]] void* allocate(std::size_t bytes) override {
    void* const memory = std::calloc(bytes, 1);
    sizes_[memory] = bytes;
    return memory;
  }
  void release(void* memory, std::size_t) noexcept override {
    released_under_work_ = released_under_work_ || !work_.entries.empty();
    std::free(memory);
  }
  [[nodiscard]] std::size_t size_of(const void* memory) const { return sizes_.at(memory); }
  /// Whether memory was released while work was queued, which may use it.
  [[nodiscard]] bool released_under_work() const noexcept { return released_under_work_; }
  void transfer_to_device(void* to, const void* from, std::size_t bytes) override {
    add(Queue::transfers, {.run = [=] { std::memcpy(to, from, bytes); }, .after = {}});
  }
  void synchronize() override { run_all(Queue::work); }
  [[nodiscard]] std::unique_ptr<Event> make_timed_event() override { return make_event(); }
  [[nodiscard]] double seconds_between(const Event&, const Event&) override { return 0; }
  [[nodiscard]] std::unique_ptr<Event> make_event() override { return std::make_unique<Mark>(); }
  void mark(Event& event, Queue queue) override {
    static_cast<Mark&>(event).point = {.queue = queue, .entries = line(queue).queued};
  }
  void queue_wait(Queue queue, const Event& event) override {
    add(queue, {.run = [] {}, .after = static_cast<const Mark&>(event).point});
  }

  [[nodiscard]] std::string description() const override { return "two queues"; }
  [[nodiscard]] Stream stream() noexcept override { return nullptr; }
  [[nodiscard]] Stream transfer_stream() noexcept override { return nullptr; }
  [[nodiscard]] ConvolutionLibrary& convolutions() override { unused(); }
  [[nodiscard]] JpegLibrary& jpeg_library() override { unused(); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept override { return 0; }
  [[nodiscard]] void* allocate_host(std::size_t) override { unused(); }
  void release_host(void*) noexcept override {}
  void copy_to_device(void*, const void*, std::size_t) override { unused(); }
  void copy_to_host(void*, const void*, std::size_t) override { unused(); }
  void copy_on_device(void*, const void*, std::size_t) override { unused(); }
  void clear(void*, std::size_t) override { unused(); }
  [[nodiscard]] std::unique_ptr<Replay> record(std::function<void()>) override { unused(); }
  [[nodiscard]] double time(const std::function<void()>&) override { unused(); }
  void wait(const Event&) override { unused(); }
  [[nodiscard]] bool has_reached(const Event&) override { unused(); }

 private:
  /// Reached when this number of entries of a queue is done.
  struct Point {
    Queue queue = Queue::work;
    std::size_t entries = 0;
  };
  struct Mark final : Event {
    Point point;
  };
  struct Entry {
    std::function<void()> run;
    Point after;
  };
  struct Line {
    std::deque<Entry> entries;
    std::size_t queued = 0;
    std::size_t done = 0;
  };

  [[noreturn]] static void unused() { throw std::logic_error("InputQueue does not call this"); }
  [[nodiscard]] Line& line(Queue queue) { return queue == Queue::work ? work_ : transfers_; }
  void add(Queue queue, Entry entry) {
    line(queue).entries.push_back(std::move(entry));
    ++line(queue).queued;
  }
  bool run_next(Queue queue) {
    Line& of = line(queue);
    if (of.entries.empty()) return false;
    const Entry& next = of.entries.front();
    if (line(next.after.queue).done < next.after.entries) return false;
    next.run();
    of.entries.pop_front();
    ++of.done;
    return true;
  }

  Line work_;
  Line transfers_;
  std::map<const void*, std::size_t> sizes_;
  bool released_under_work_ = false;
};

constexpr ImageExtent one_pixel{.batch = 1, .height = 1, .width = 1, .channels = 1, .padded = 4};

/// One image of one pixel.
struct OnePixel {
  std::uint8_t pixel;
  std::int32_t label;
  ImageMix mix;
  std::uint64_t dropped;
  PixelCut cut{.height = 1, .width = 1};
  std::array<float, 256> values{};

  [[nodiscard]] Batch batch() const {
    return {
        .targets = {.labels = &label, .mixes = label % 2 == 0 ? &mix : nullptr},
        .size = 1,
        .pixels = {.data = &pixel, .height = 1, .width = 1, .cuts = &cut, .values = values.data()},
        .dropped = {.masks = label % 3 == 0 ? &dropped : nullptr}};
  }
};

/// The batch that the work of each step read, with `ahead` batches in flight before each is taken.
std::vector<int> train(Device::Queue first, std::size_t ahead) {
  TwoQueues device;
  InputQueue input(device, 1);
  std::deque<OnePixel> batches;
  for (std::uint8_t i = 0; i < 9; ++i) {
    batches.push_back({.pixel = i, .label = i, .mix = {.partner = i}, .dropped = i});
  }
  std::vector<int> seen(batches.size(), -1);
  std::size_t begun = 0;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (; begun < batches.size() && begun < i + ahead; ++begun)
      input.begin(batches[begun].batch());
    const DeviceBatch taken = input.take(batches[i].batch(), one_pixel);
    device.queue_work([=, &seen] {
      const int pixel = *taken.images.data;
      const Targets& targets = taken.targets;
      const bool mixed = targets.mixes != nullptr;
      const bool right = mixed ? targets.mixes->partner == pixel : pixel % 2 == 1;
      const std::uint64_t* const masks = taken.dropped.masks;
      const bool right_masks =
          masks != nullptr ? *masks == static_cast<std::uint64_t>(pixel) : pixel % 3 != 0;
      seen[i] = pixel == *targets.labels && right && right_masks ? pixel : -2;
    });
    input.release();
    begun = std::max(begun, i + 1);
  }
  device.run_all(first);
  return seen;
}

}  // namespace

BOOST_AUTO_TEST_CASE(work_reads_its_own_batch_whichever_queue_is_ahead) {
  const std::vector<int> expected{0, 1, 2, 3, 4, 5, 6, 7, 8};
  for (const std::size_t ahead : {0, 1, 2}) {
    BOOST_TEST_CONTEXT(ahead << " batches in flight") {
      BOOST_TEST(train(Device::Queue::work, ahead) == expected, boost::test_tools::per_element());
      BOOST_TEST(train(Device::Queue::transfers, ahead) == expected,
                 boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(the_workspace_grows_after_the_work_that_uses_the_old_one) {
  TwoQueues device;
  InputQueue input(device, 1);
  std::array<OnePixel, 3> batches{};
  std::size_t taken = 0;
  for (const std::int64_t side : {1, 7, 3}) {
    const ImageExtent extent{.batch = 1, .height = side, .width = side, .channels = 1, .padded = 4};
    const DeviceBatch batch = input.take(batches[taken++].batch(), extent);
    BOOST_TEST(device.size_of(batch.images.workspace) >= cut_images_workspace(extent, 1, 1));
    device.queue_work([] {});
    input.release();
  }
  BOOST_TEST(!device.released_under_work());
  device.run_all(Device::Queue::work);
}
