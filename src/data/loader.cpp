#include "lockstep/data/loader.hpp"

#include "batch_request.hpp"
#include "lockstep/core/current_error.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "slot_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// How long a loader that is destroyed waits for reads in progress.
constexpr auto longest_last_read = std::chrono::seconds(2);

/// What the threads of a loader read. Each thread writes its own mark; any thread may ask.
class ReadProgress final {
 public:
  explicit ReadProgress(int threads) : marks_(static_cast<std::size_t>(threads)) {}

  void begin(int thread, std::int64_t sample) noexcept {
    Mark& mark = marks_[static_cast<std::size_t>(thread)];
    mark.since.store(std::chrono::steady_clock::now().time_since_epoch().count(), relaxed);
    mark.sample.store(sample, relaxed);
  }
  void end(int thread) noexcept {
    marks_[static_cast<std::size_t>(thread)].sample.store(none, relaxed);
    finished_.fetch_add(1, relaxed);
  }
  /// Reads that have ended.
  [[nodiscard]] std::int64_t finished() const noexcept { return finished_.load(relaxed); }
  /// The sample whose read has lasted longest; `none`: no read is in progress.
  [[nodiscard]] std::int64_t slowest() const noexcept {
    std::int64_t slowest = none;
    std::int64_t since = std::numeric_limits<std::int64_t>::max();
    for (const Mark& mark : marks_) {
      const std::int64_t sample = mark.sample.load(relaxed);
      if (sample == none || mark.since.load(relaxed) >= since) continue;
      slowest = sample;
      since = mark.since.load(relaxed);
    }
    return slowest;
  }
  static constexpr std::int64_t none = -1;

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;
  struct Mark {
    std::atomic<std::int64_t> sample = none;
    std::atomic<std::int64_t> since = 0;
  };
  std::vector<Mark> marks_;
  std::atomic<std::int64_t> finished_ = 0;
};

class RingLoader final : public Loader, private HostDecoding {
 public:
  RingLoader(const Dataset& dataset, LoaderOptions options, BatchPlan plan)
      : dataset_(dataset),
        shared_dataset_(dataset.weak_from_this().lock()),
        options_(std::move(options)),
        plan_(std::move(plan)),
        slot_reader_(dataset_, options_),
        slots_(options_.threads == 0 ? 1 : static_cast<std::size_t>(options_.batches_ahead) + 1),
        own_reader_(dataset_, options_, slot_reader_.normalizer()) {
    slot_reader_.allocate(slots_);
    const std::vector<TraceRow*> rows = loader_rows(options_);
    if (options_.threads == 0) own_row_ = rows.front();
    running_ = options_.threads;
    threads_.reserve(static_cast<std::size_t>(options_.threads));
    for (int i = 0; i < options_.threads; ++i) {
      TraceRow* const row = rows[static_cast<std::size_t>(i)];
      // Made here, as an error in a thread would end the process.
      auto reader = std::make_unique<SampleReader>(dataset_, options_, slot_reader_.normalizer());
      threads_.emplace_back(
          [this, row, i, reader = std::move(reader)](const std::stop_token& stop) {
            allow_cores(options_.cores);
            work(stop, row, {.samples = *reader, .thread = i});
            const std::lock_guard lock(mutex_);
            if (--running_ == 0) batch_done_.notify_all();
          });
    }
  }
  RingLoader(const RingLoader&) = delete;
  RingLoader& operator=(const RingLoader&) = delete;
  ~RingLoader() override {
    if (slot_reader_.encodes()) options_.format.decoding->finish();  // may read files of a slot
  }

  using Loader::next;
  std::optional<LoadedBatch> next(FunctionRef<void()> meanwhile) override {
    if (failure_) throw *failure_;
    const std::int64_t n = next_++;
    LoaderSlot& slot = slot_of(n);
    if (options_.threads == 0) {
      if (ended_) return std::nullopt;
      plan_slot(n);
      const TraceSpan span(own_row_, "samples", samples_of(slot, n, 0, slot.count()));
      for (std::int64_t i = 0; i < slot.count() && !slot.error; ++i) {
        read_sample(own_reader_, slot, i);
        meanwhile();
      }
    } else {
      std::unique_lock lock(mutex_);
      released_ = n;
      work_changed_.notify_all();
      const auto is_ready = [&] { return planned_ > n && slot.finished == slot.count(); };
      while (!batch_done_.wait_for(lock, std::chrono::milliseconds(1), is_ready)) {
        lock.unlock();
        meanwhile();
        lock.lock();
      }
    }
    if (slot.error) {
      failure_ = slot.error;
      throw *failure_;
    }
    if (!slot.request) {
      --next_;  // later calls find the same end
      return std::nullopt;
    }
    returned_ = &slot;
    return LoadedBatch{.request = *slot.request, .batch = slot_reader_.batch_of(slot, *this)};
  }

  [[nodiscard]] std::int64_t samples_read() const noexcept override { return progress_.finished(); }
  [[nodiscard]] std::string slowest_read() const override {
    const std::int64_t sample = progress_.slowest();
    return sample == ReadProgress::none ? std::string() : dataset_.describe(sample);
  }

  /// Ends the threads. False if one is blocked in a read: it then must find the loader's memory
  /// when it returns.
  [[nodiscard]] bool end_threads() {
    for (std::jthread& thread : threads_) thread.request_stop();
    std::unique_lock lock(mutex_);
    if (batch_done_.wait_for(lock, longest_last_read, [this] { return running_ == 0; }))
      return true;
    abandoned_ = true;
    return false;
  }

 private:
  /// What a thread reads with.
  struct ThreadReader {
    SampleReader& samples;
    int thread;
  };

  [[nodiscard]] LoaderSlot& slot_of(std::int64_t n) {
    return slots_[static_cast<std::size_t>(n) % slots_.size()];
  }

  /// Gets batch n from the plan. With threads, the caller holds the mutex.
  void plan_slot(std::int64_t n) {
    LoaderSlot& slot = slot_of(n);
    slot.assigned = 0;
    slot.finished = 0;
    slot.failed_sample = std::numeric_limits<std::int64_t>::max();
    slot.error.reset();
    slot.request.reset();
    try {
      slot.request = plan_(n);
      if (slot.request) check_request(*slot.request, dataset_.info().samples, options_);
    } catch (...) {
      slot.request.reset();
      slot.note(0, current_error());
    }
    planned_ = n + 1;
    ended_ = !slot.request;
  }

  /// The engine calls this for the batch that next() has returned last.
  void decode(std::int64_t i) override { slot_reader_.decode(own_reader_, *returned_, i); }

  void read_sample(SampleReader& reader, LoaderSlot& slot, std::int64_t i) {
    if (auto error = slot_reader_.read(reader, slot, i)) slot.note(i, std::move(*error));
  }

  /// The first planned batch with unassigned samples; plans more batches while slots are free. Null
  /// if there is no work now.
  [[nodiscard]] LoaderSlot* slot_with_work() {
    for (;;) {
      for (; assigning_ < planned_; ++assigning_) {
        LoaderSlot& slot = slot_of(assigning_);
        if (slot.assigned < slot.count()) return &slot;
      }
      if (ended_ || planned_ >= released_ + static_cast<std::int64_t>(slots_.size()))
        return nullptr;
      plan_slot(planned_);
      batch_done_.notify_all();  // a batch without samples, or the end of the plan, is done at once
    }
  }

  /// Trace arguments for samples [begin, end) of batch n.
  [[nodiscard]] static TraceArguments samples_of(const LoaderSlot& slot, std::int64_t n,
                                                 std::int64_t begin, std::int64_t end) noexcept {
    const std::int64_t first = slot.request ? slot.request->first + begin : 0;
    return {{{"batch", n}, {"position", first}, {"samples", end - begin}}};
  }

  std::optional<Error> try_read(const ThreadReader& reader, LoaderSlot& slot, std::int64_t i) {
    progress_.begin(reader.thread, slot_reader_.sample_of(slot, i).sample);
    std::optional<Error> error = slot_reader_.read(reader.samples, slot, i);
    // Everything around the loader may be gone.
    while (abandoned_) std::this_thread::sleep_for(std::chrono::hours(1));
    progress_.end(reader.thread);
    return error;
  }

  void work(const std::stop_token& stop, TraceRow* row, const ThreadReader& reader) {
    std::unique_lock lock(mutex_);
    for (;;) {
      LoaderSlot* slot = nullptr;
      work_changed_.wait(lock, stop, [&] { return (slot = slot_with_work()) != nullptr; });
      if (stop.stop_requested()) return;
      const std::int64_t begin = slot->assigned;
      // Four ranges per thread and batch, so that the threads end a batch at about the same time.
      std::int64_t count =
          std::max<std::int64_t>(1, slot->count() / (std::int64_t{4} * options_.threads));
      if (options_.mix.any()) {  // one thread reads both samples of a pair
        const Slice step = step_of(*slot->request);
        count += (slot->request->first + begin + count - step.begin) % 2;
      }
      const std::int64_t end = std::min(slot->count(), begin + count);
      slot->assigned = end;
      const std::int64_t batch = assigning_;
      lock.unlock();
      std::optional<Error> error;
      std::int64_t i = begin;
      {
        const TraceSpan span(row, "samples", samples_of(*slot, batch, begin, end));
        for (; i < end && !error && !stop.stop_requested(); ++i) error = try_read(reader, *slot, i);
      }
      lock.lock();
      if (error) slot->note(i - 1, std::move(*error));
      slot->finished += end - begin;
      if (slot->finished == slot->count()) batch_done_.notify_all();
    }
  }

  const Dataset& dataset_;
  const std::shared_ptr<const Dataset> shared_dataset_;  ///< keeps it for abandoned threads
  const LoaderOptions options_;
  ReadProgress progress_{options_.threads};
  const BatchPlan plan_;
  SlotReader slot_reader_;
  std::vector<LoaderSlot> slots_;
  SampleReader own_reader_;         ///< used without threads
  TraceRow* own_row_ = nullptr;     ///< trace row of own_reader_
  LoaderSlot* returned_ = nullptr;  ///< of the batch that next() has returned last
  std::int64_t next_ = 0;           ///< batch that next() returns next
  std::optional<Error> failure_;    ///< every next() throws it

  std::mutex mutex_;
  std::condition_variable_any work_changed_;
  std::condition_variable batch_done_;
  std::int64_t planned_ = 0;    ///< batches requested from the plan
  std::int64_t assigning_ = 0;  ///< first batch that may have unassigned samples
  std::int64_t released_ = 0;   ///< slots of batches before this one are free
  bool ended_ = false;
  int running_ = 0;  ///< threads
  std::atomic<bool> abandoned_ = false;
  std::vector<std::jthread> threads_;  ///< declared last, so stopped and destroyed first
};

/// Leaves a loader behind whose threads are blocked.
class LeavableLoader final : public Loader {
 public:
  explicit LeavableLoader(std::unique_ptr<RingLoader> ring) : ring_(std::move(ring)) {}
  LeavableLoader(const LeavableLoader&) = delete;
  LeavableLoader& operator=(const LeavableLoader&) = delete;
  ~LeavableLoader() override {
    if (!ring_->end_threads()) static_cast<void>(ring_.release());
  }

  using Loader::next;
  std::optional<LoadedBatch> next(FunctionRef<void()> meanwhile) override {
    return ring_->next(meanwhile);
  }
  [[nodiscard]] std::int64_t samples_read() const noexcept override {
    return ring_->samples_read();
  }
  [[nodiscard]] std::string slowest_read() const override { return ring_->slowest_read(); }

 private:
  std::unique_ptr<RingLoader> ring_;
};

}  // namespace

int loader_threads(std::int64_t asked, const LoaderOptions& options, std::int64_t share) noexcept {
  constexpr std::int64_t most = 16;
  if (asked >= 0) return static_cast<int>(asked);
  if (options.format.content == ImageContent::values) return 1;
  return static_cast<int>(
      std::clamp(std::min(std::ssize(options.cores), share) - 1, std::int64_t{1}, most));
}

std::vector<TraceRow*> loader_rows(const LoaderOptions& options) {
  // Without threads, one row for the calling thread.
  std::vector<TraceRow*> rows(static_cast<std::size_t>(std::max(1, options.threads)));
  if (options.trace == nullptr) return rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = &options.trace->row(fmt::format("{} {}", options.trace_row, i));
  }
  return rows;
}

std::unique_ptr<Loader> make_loader(const Dataset& dataset, LoaderOptions options, BatchPlan plan) {
  check_loader_options(dataset.info(), options);
  return std::make_unique<LeavableLoader>(
      std::make_unique<RingLoader>(dataset, std::move(options), std::move(plan)));
}

}  // namespace lockstep
