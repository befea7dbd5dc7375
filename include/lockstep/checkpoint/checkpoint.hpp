#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/core/image_shape.hpp"
#include "lockstep/core/metrics.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/weights/weights_file.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// A named fp32 tensor in plain layout.
struct NamedTensor {
  std::string name;
  Shape shape;
  std::vector<float> values;
  friend bool operator==(const NamedTensor&, const NamedTensor&) = default;
};

/// `/state`: the progress of a run. Stored with one checksum over its canonical form.
struct TrainingState {
  std::int64_t step = 0;      ///< optimizer steps done
  std::int64_t epoch = 0;     ///< epoch of the next step
  std::int64_t position = 0;  ///< first position of that epoch not yet used
  std::int64_t samples = 0;   ///< samples seen in total
  std::int64_t seed = 0;
  std::int64_t world_size = 1;
  std::int64_t global_batch = 0;
  double epoch_loss = 0;            ///< partial sums of this epoch
  MetricValues epoch_metrics = {};  ///< those of training
  double epoch_samples = 0;
  double best_top1 = -1;  ///< best validation mean of deciding_metric; -1: none yet
  std::int64_t best_step = -1;
  std::int64_t last_eval_step = -1;  ///< last evaluated step; -1: none yet
  double loss_scale = 0;             ///< of the next step; 0: not fp16
  std::int64_t loss_scale_good_steps = 0;
  std::int64_t skipped_steps = 0;  ///< steps whose scaled gradients overflowed
  std::uint32_t data_identity = 0;
  std::uint32_t model_identity = 0;  ///< Graph::fingerprint()
  std::string model;
  std::string optimizer;
  std::string config;   ///< the resolved configuration, as --print-config prints it
  std::string version;  ///< of the program
  /// Compute::convolutions(); nullopt in files of format version 1.
  std::optional<std::string> convolutions = {};
  /// Compute::all_reduce(); nullopt in files of format versions 1 and 2.
  std::optional<std::string> all_reduce = {};
  /// Compute::backend(); nullopt in files of format versions 1 to 3.
  std::optional<std::string> backend = {};
  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

/// Contents of a checkpoint file except tensors.
struct CheckpointInfo {
  std::vector<float> mean;
  std::vector<float> std;
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  std::optional<ImageShape> image = {};  ///< the network's input; nullopt in files up to 0.9.0
  std::optional<TrainingState> state;
  friend bool operator==(const CheckpointInfo&, const CheckpointInfo&) = default;
};

/// A whole file. A weights-only file has only `model`.
struct Checkpoint : CheckpointInfo {
  std::vector<NamedTensor> model;  ///< parameters and running statistics, torchvision's names
  std::map<std::string, std::vector<NamedTensor>> optimizer;  ///< by slot
  std::vector<NamedTensor> ema = {};  ///< average of `model`, same names; empty: none
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

inline constexpr const char* model_group = "/model";
inline constexpr const char* ema_group = "/ema";
/// The group of an optimizer slot's tensors, in `/optimizer`.
[[nodiscard]] std::string slot_group(const std::string& slot);

/// A tensor and its group: model_group, ema_group or slot_group().
struct StoredTensor {
  std::string group;
  NamedTensor tensor;
};
/// Returns a file's tensors one by one, those of one group consecutively; nullopt after the last.
using NextTensor = std::function<std::optional<StoredTensor>()>;
[[nodiscard]] NextTensor tensors_of(Checkpoint checkpoint);

/// Callbacks while a file is written; any may be empty.
struct WriteHooks {
  /// Called every few MiB, to distinguish a slow disk from one that hangs.
  std::function<void()> on_progress;
  /// Called last before the rename; if it throws, nothing is published.
  std::function<void()> before_publish;
};
/// Writes a temporary file, flushes, fsyncs, renames, fsyncs the directory. Errors, also those of
/// `next`, leave `path` as write_atomically() says: cannot_write, internal, or diverged (a value is
/// not finite). The same tensors give the same bytes.
void write_checkpoint(const FilePath& path, const CheckpointInfo& info, const NextTensor& next,
                      const WriteHooks& hooks = {});
void write_checkpoint(const FilePath& path, const Checkpoint& checkpoint);

enum class CheckpointUse {
  weights,  ///< eval, --init-from: /model is enough
  resume,   ///< requires a complete file with all checksums
};

/// An open file whose tensors are read one at a time. To read weights, also a file of another
/// program (WeightsFile), whose average is ema(). All functions throw Error(no_input) if the
/// file is absent or unreadable, and Error(bad_input), naming the dataset, if it does not verify
/// (checksum, truncated, NaN in a tensor, wrong type). Checks every checksum that is present.
class CheckpointReader final {
 public:
  CheckpointReader(const FilePath& path, CheckpointUse use);
  CheckpointReader(CheckpointReader&&) = default;
  CheckpointReader& operator=(CheckpointReader&&) = default;

  [[nodiscard]] const CheckpointInfo& info() const noexcept { return info_; }
  struct Tensor {
    std::string name;
    Shape shape;
    std::string stored_as;  ///< the name in the file, for messages
  };
  /// In file order.
  [[nodiscard]] const std::vector<Tensor>& model() const noexcept { return model_; }
  /// As model(); empty: the run averages no weights.
  [[nodiscard]] const std::vector<Tensor>& ema() const noexcept { return ema_; }
  [[nodiscard]] const std::map<std::string, std::vector<Tensor>>& optimizer() const noexcept {
    return optimizer_;
  }
  [[nodiscard]] std::vector<float> read(const std::string& group, const Tensor& tensor) const;
  /// Reads every tensor and discards it.
  void verify() const;

 private:
  void read_all_but_values();
  void take_weights();
  void check_total() const;

  std::string path_;
  CheckpointUse use_;
  h5::Object file_;                     ///< null if `weights_` is not
  std::optional<WeightsFile> weights_;  ///< of another program
  CheckpointInfo info_;
  std::vector<Tensor> model_;
  std::vector<Tensor> ema_;
  std::map<std::string, std::vector<Tensor>> optimizer_;
};

/// Serialises a state so that other ranks read back the same bits; never empty.
[[nodiscard]] std::string training_state_text(const TrainingState& state);
/// Inverse; Error(internal) if `text` is not a serialised state.
[[nodiscard]] TrainingState parse_training_state(const std::string& text);

/// Reads the whole file into memory.
[[nodiscard]] Checkpoint read_checkpoint(const FilePath& path, CheckpointUse use);

}  // namespace lockstep
