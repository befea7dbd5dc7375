#pragma once

#include "lockstep/config/config.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/sample_order.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/trace.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The samples of one micro-batch of this rank: positions [first, first + count) of an epoch.
struct BatchRequest {
  std::int64_t epoch = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  friend bool operator==(const BatchRequest&, const BatchRequest&) = default;
};

/// The n-th micro-batch this rank will ask for, n = 0, 1, ...; nullopt ends. Pure; called by the
/// loader's own threads, ahead of training.
using BatchPlan = std::function<std::optional<BatchRequest>(std::int64_t n)>;

struct LoaderOptions {
  ImageShape image;  ///< what the network takes
  InputFormat format;
  std::vector<float> mean;  ///< (C,)
  std::vector<float> std;
  Augment augment = Augment::none;  ///< evaluation: none (centre crop where sizes differ)
  std::int64_t crop_padding = 4;
  std::uint64_t seed = 0;
  std::int64_t batch_capacity = 0;  ///< largest count of any request
  int threads = 1;                  ///< 0: read in the calling thread
  int batches_ahead = 3;
  bool shuffle = true;  ///< false: sample index = position (evaluation)
  std::int64_t shuffle_block = 1;
  std::vector<int> cores = {};       ///< where the loader's threads may run; empty: as the caller
  TraceRecorder* trace = nullptr;    ///< has a row a thread; null: it is not traced
  std::string trace_row = "loader";  ///< and the thread's number
};

/// A batch ready for the engine; valid until the next call of next().
struct LoadedBatch {
  BatchRequest request;
  Batch batch;
};

/// Reads, decodes, augments and normalises ahead of training, into buffers in the engine's input
/// format; for an engine that takes pixels, reads, decodes and draws what is to be done with them.
/// Memory is `batches_ahead` + 1 batches. Batches come in order; their content does not depend on
/// the threads. A fault in a sample is thrown by the next() that would return its batch, and each
/// next() after it.
class Loader {
 public:
  virtual ~Loader() = default;
  /// nullopt at the plan's end.
  [[nodiscard]] virtual std::optional<LoadedBatch> next() = 0;
};

/// By thread, the row that a loader with these options is traced on; null where it is not. Rows are
/// made, with their memory, where they are not there.
[[nodiscard]] std::vector<TraceRow*> loader_rows(const LoaderOptions& options);

/// `dataset` outlives the loader.
[[nodiscard]] std::unique_ptr<Loader> make_loader(const Dataset& dataset, LoaderOptions options,
                                                  BatchPlan plan);

}  // namespace lockstep
