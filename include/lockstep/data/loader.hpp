#pragma once

#include "lockstep/config/option_types.hpp"
#include "lockstep/core/batch.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/data/auto_augment.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/mix.hpp"
#include "lockstep/data/sample_order.hpp"
#include "lockstep/runtime/trace.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// One micro-batch of this rank: positions [first, first + count) of an epoch.
struct BatchRequest {
  std::int64_t epoch = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  Slice step{.begin = 0, .count = 0};  ///< positions of the global batch; for `repeats` and mixing
  friend bool operator==(const BatchRequest&, const BatchRequest&) = default;
};

/// Returns this rank's n-th micro-batch, n = 0, 1, ...; nullopt: no more. Must be pure; the
/// loader's threads call it ahead of training.
using BatchPlan = std::function<std::optional<BatchRequest>(std::int64_t n)>;

struct LoaderOptions {
  ImageShape image;  ///< shape of the network's input
  InputFormat format;
  std::vector<float> mean;  ///< (C,)
  std::vector<float> std;
  Augment augment = Augment::none;  ///< evaluation: none (centre crop if sizes differ)
  /// Of encoded images without augmentation, before the centre is cropped, in pixels; 0: that of
  /// default_eval_crop_ratio.
  std::int64_t short_side = 0;
  ResizeFilter filter = ResizeFilter::bilinear;  ///< of encoded images and resized crops
  std::int64_t crop_padding = 4;
  AutoAugmentOptions auto_augment = {};  ///< evaluation: none
  double random_erasing = 0;             ///< probability; evaluation: 0
  MixOptions mix =
      {};  ///< for engines that take pixels, no batch separates a pair; evaluation: none
  /// By block, the probability of stochastic depth; empty, as in evaluations: none.
  std::vector<float> drop_probabilities = {};
  std::uint64_t seed = 0;
  std::int64_t batch_capacity = 0;  ///< largest count of any request
  int threads = 1;                  ///< 0: next() reads in the calling thread
  int batches_ahead = 3;
  bool shuffle = true;  ///< false: sample index = position (evaluation)
  std::int64_t shuffle_block = 1;
  std::int64_t repeats = 1;          ///< copies of a sample in an epoch, with `shuffle` only
  std::vector<int> cores = {};       ///< cores for the loader's threads; empty: the caller's
  TraceRecorder* trace = nullptr;    ///< one row per thread; null: no tracing
  std::string trace_row = "loader";  ///< row name, followed by the thread's number
};

/// A batch ready for the engine; valid until the next call of next().
struct LoadedBatch {
  BatchRequest request;
  Batch batch;
};

/// Reads, decodes, augments and normalises ahead of training, into buffers in the engine's input
/// format. For an engine that takes pixels, it reads, decodes and draws cuts, erased boxes and
/// mixes; it also cuts images that it augments automatically. Holds `batches_ahead` + 1 batches
/// (one without threads). Batches come in order, and their content does not depend on the number of
/// threads. If a sample fails, the next() that would return its batch throws the error, and so does
/// every later next().
class Loader {
 public:
  virtual ~Loader() = default;
  /// nullopt at the end of the plan. Calls `meanwhile` about once a millisecond as long as the
  /// batch is not ready; without threads, after each sample.
  [[nodiscard]] virtual std::optional<LoadedBatch> next(FunctionRef<void()> meanwhile) = 0;
  [[nodiscard]] std::optional<LoadedBatch> next() {
    return next([] {});
  }
  /// Samples that its threads have read so far.
  [[nodiscard]] virtual std::int64_t samples_read() const noexcept { return 0; }
  /// The sample that a thread has been reading for the longest time, as Dataset::describe(); empty:
  /// none.
  [[nodiscard]] virtual std::string slowest_read() const { return {}; }
};

/// Threads for --loader-threads `asked`. -1: one if the engine computes on the loader's cores; for
/// an engine on a device, one per core besides the training thread's, at most 16. `share`: as of
/// ThreadBinding.
[[nodiscard]] int loader_threads(std::int64_t asked, const LoaderOptions& options,
                                 std::int64_t share) noexcept;

/// Length to which the short side is resized for a centre crop of `image` with --eval-crop-ratio
/// `ratio`, rounded.
[[nodiscard]] std::int64_t short_side_of(const ImageShape& image, double ratio) noexcept;

/// Error(usage), with both values, if the options do not match the data set or each other.
void check_loader_options(const DatasetInfo& info, const LoaderOptions& options);

/// The trace row of each thread of a loader with these options; null if `trace` is null. Creates
/// missing rows and allocates their memory.
[[nodiscard]] std::vector<TraceRow*> loader_rows(const LoaderOptions& options);

/// `dataset` must outlive the loader. If a thread is blocked in a read when the loader is
/// destroyed, it is left behind with its memory, and with `dataset` if a shared_ptr owns it.
[[nodiscard]] std::unique_ptr<Loader> make_loader(const Dataset& dataset, LoaderOptions options,
                                                  BatchPlan plan);

}  // namespace lockstep
