#include "lockstep/data/loader.hpp"

#include "batch_request.hpp"
#include "loader_slot.hpp"
#include "lockstep/core/current_error.hpp"
#include "lockstep/core/host_memory.hpp"
#include "lockstep/data/dropped_blocks.hpp"
#include "lockstep/runtime/thread_binding.hpp"
#include "read_progress.hpp"
#include "sample_reader.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

/// How long a loader that is destroyed waits for reads in progress.
constexpr auto longest_last_read = std::chrono::seconds(2);

std::int64_t values_of(const ImageShape& shape) noexcept {
  return shape.channels * shape.height * shape.width;
}

class RingLoader final : public Loader, private HostDecoding {
 public:
  RingLoader(const Dataset& dataset, LoaderOptions options, BatchPlan plan)
      : dataset_(dataset),
        shared_dataset_(dataset.weak_from_this().lock()),
        options_(std::move(options)),
        plan_(std::move(plan)),
        normalizer_(options_.mean, options_.std),
        order_(dataset.info().samples, options_.seed, options_.shuffle_block),
        takes_pixels_(options_.format.content == ImageContent::pixels),
        encodes_(decodes_on_device(options_)),
        stored_(pixel_shape(dataset.info(), options_)),
        image_size_(values_of(takes_pixels_ ? stored_ : options_.image)),
        slots_(options_.threads == 0 ? 1 : static_cast<std::size_t>(options_.batches_ahead) + 1),
        own_reader_(dataset_, options_, normalizer_) {
    allocate();
    const std::vector<TraceRow*> rows = loader_rows(options_);
    if (options_.threads == 0) own_row_ = rows.front();
    running_ = options_.threads;
    threads_.reserve(static_cast<std::size_t>(options_.threads));
    for (int i = 0; i < options_.threads; ++i) {
      TraceRow* const row = rows[static_cast<std::size_t>(i)];
      // Made here, as an error in a thread would end the process.
      auto reader = std::make_unique<SampleReader>(dataset_, options_, normalizer_);
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
    if (encodes_) options_.format.decoding->finish();  // may read files of a slot
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
    return LoadedBatch{.request = *slot.request, .batch = batch_of(slot)};
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

  void allocate() {
    HostMemory* const memory = options_.format.memory;
    const auto capacity = static_cast<std::size_t>(options_.batch_capacity);
    // With mixing, two partners that are not in the batch follow it.
    const std::size_t read = capacity + (mixes_partners() ? 2 : 0);
    const std::size_t images = read * static_cast<std::size_t>(image_size_);
    for (LoaderSlot& slot : slots_) {
      slot.labels = HostBuffer<std::int32_t>(memory, read);
      if (options_.mix.any()) slot.mixes = HostBuffer<ImageMix>(memory, capacity);
      if (!options_.drop_probabilities.empty()) {
        slot.dropped = HostBuffer<std::uint64_t>(memory, capacity);
      }
      if (takes_pixels_) {
        slot.pixels = HostBuffer<std::uint8_t>(memory, images);
        slot.cuts = HostBuffer<PixelCut>(memory, capacity);
        if (options_.random_erasing > 0) slot.erased = HostBuffer<PixelBox>(memory, capacity);
        if (encodes_) {
          slot.encoded.resize(capacity);
          slot.files.resize(capacity);
        }
      } else {
        slot.images = HostBuffer<float>(memory, images);
        // The engine also reads the unused rest of a short batch, which must be initialised.
        std::ranges::fill(slot.images.span(), 0.0F);
      }
    }
    if (!takes_pixels_) return;
    pixel_values_ = HostBuffer<float>(memory, normalizer_.values().size());
    std::ranges::copy(normalizer_.values(), pixel_values_.data());
  }

  [[nodiscard]] Batch batch_of(LoaderSlot& slot) {
    Batch batch{
        .labels = slot.labels.data(), .size = slot.request->count, .mixes = slot.mixes.data()};
    if (takes_pixels_) {
      batch.pixels = {
          .data = slot.pixels.data(),
          .height = static_cast<std::int32_t>(stored_.height),
          .width = static_cast<std::int32_t>(stored_.width),
          .cuts = slot.cuts.data(),
          .values = pixel_values_.data(),
          .erased = slot.erased.data(),
          .encoded = {.images = encodes_ ? slot.encoded.data() : nullptr, .host = this}};
      returned_ = &slot;
    } else {
      batch.images = slot.images.data();
    }
    batch.dropped = slot.dropped.data();
    return batch;
  }

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

  [[nodiscard]] SampleCopy sample_of(const LoaderSlot& slot, std::int64_t i) const noexcept {
    return sample_at(*slot.request, slot.request->first + i, options_, order_);
  }

  /// Whether a batch of values may begin or end between the samples of a pair.
  [[nodiscard]] bool mixes_partners() const noexcept {
    return options_.mix.any() && !takes_pixels_;
  }

  /// Reads sample i of the slot's batch; returns the error instead of throwing.
  std::optional<Error> try_read(SampleReader& reader, LoaderSlot& slot, std::int64_t i) noexcept {
    try {
      const SampleCopy sample = sample_of(slot, i);
      read_image(reader, slot, sample, i);
      if (options_.mix.any()) mix(reader, slot, i);
      if (!options_.drop_probabilities.empty()) {
        slot.dropped[static_cast<std::size_t>(i)] = draw_dropped_blocks(
            options_.drop_probabilities, options_.seed, slot.request->epoch, sample);
      }
      return std::nullopt;
    } catch (...) {
      return current_error();
    }
  }

  /// Reads a sample to place i of the slot, as it is before mixing.
  void read_image(SampleReader& reader, LoaderSlot& slot, SampleCopy sample, std::int64_t i) {
    const std::int64_t epoch = slot.request->epoch;
    const std::int64_t at = i * image_size_;
    const auto index = static_cast<std::size_t>(i);
    slot.labels[index] = takes_pixels_
                             ? reader.read(epoch, sample,
                                           SampleReader::PixelTarget{
                                               .pixels = slot.pixels.data() + at,
                                               .cut = slot.cuts.data() + i,
                                               .encoded = encodes_ ? &slot.encoded[index] : nullptr,
                                               .file = encodes_ ? &slot.files[index] : nullptr})
                             : reader.read(epoch, sample, slot.images.data() + at);
    if (options_.random_erasing > 0) erase(slot, i, sample);
  }

  /// The engine calls this for the batch that next() has returned last.
  void decode(std::int64_t i) override {
    LoaderSlot& slot = *returned_;
    own_reader_.decode(sample_of(slot, i), slot.encoded[static_cast<std::size_t>(i)],
                       slot.pixels.data() + i * image_size_);
  }

  void erase(LoaderSlot& slot, std::int64_t i, SampleCopy sample) noexcept {
    PhiloxStream random = erasing_stream(options_.seed, slot.request->epoch, sample);
    const PixelBox box = draw_erased_box(random, options_.random_erasing, options_.image);
    if (takes_pixels_) {
      slot.erased[static_cast<std::size_t>(i)] = box;
    } else {
      erase_box(box, options_.image, options_.format.layout, slot.images.data() + i * image_size_);
    }
  }

  /// Mixes sample i with its partner, if that is read: the samples at offsets 2k and 2k + 1 of the
  /// step are a pair. A partner that belongs to another micro-batch is read here too, so ranks do
  /// not change what is mixed. The step's last sample may have no partner and stays as it is.
  void mix(SampleReader& reader, LoaderSlot& slot, std::int64_t i) {
    const BatchRequest& request = *slot.request;
    const Slice step = step_of(request);
    const std::int64_t offset = request.first + i - step.begin;
    const std::int64_t first = request.first + i - offset % 2;  // position of the pair's first
    const std::int64_t begin = first - request.first;           // its index in the batch
    const bool has_second = first + 1 < step.end();
    if (!has_second) {
      slot.mixes[static_cast<std::size_t>(i)] = {.partner = static_cast<std::int32_t>(i)};
      return;
    }
    if (offset % 2 == 0 && i + 1 < request.count) return;  // mixed when the second is read
    const std::int64_t one = begin >= 0 ? begin : options_.batch_capacity;
    const std::int64_t other = begin + 1 < request.count ? begin + 1 : options_.batch_capacity + 1;
    if (one != begin) read_image(reader, slot, sample_at(request, first, options_, order_), one);
    if (other != begin + 1)
      read_image(reader, slot, sample_at(request, first + 1, options_, order_), other);
    PhiloxStream random = mixing_stream(options_.seed, request.epoch, first / 2);
    ImageMix mix = draw_mix(random, options_.mix, options_.image);
    for (const auto& [sample, partner] : {std::pair(one, other), std::pair(other, one)}) {
      if (sample >= request.count) continue;
      mix.partner = static_cast<std::int32_t>(partner);
      slot.mixes[static_cast<std::size_t>(sample)] = mix;
    }
    if (takes_pixels_) return;
    mix_pair(mix, options_.image, options_.format.layout, slot.images.data() + one * image_size_,
             slot.images.data() + other * image_size_);
  }

  void read_sample(SampleReader& reader, LoaderSlot& slot, std::int64_t i) {
    if (auto error = try_read(reader, slot, i)) slot.note(i, std::move(*error));
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
    progress_.begin(reader.thread, sample_of(slot, i).sample);
    std::optional<Error> error = try_read(reader.samples, slot, i);
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
  const Normalizer normalizer_;
  const SampleOrder order_;
  const bool takes_pixels_;
  const bool encodes_;             ///< batches have files
  const ImageShape stored_;        ///< shape of images in a batch of pixels
  const std::int64_t image_size_;  ///< values or pixel bytes per image
  std::vector<LoaderSlot> slots_;
  HostBuffer<float> pixel_values_;
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

std::unique_ptr<Loader> make_loader(const Dataset& dataset, LoaderOptions options, BatchPlan plan) {
  check_loader_options(dataset.info(), options);
  return std::make_unique<LeavableLoader>(
      std::make_unique<RingLoader>(dataset, std::move(options), std::move(plan)));
}

}  // namespace lockstep
