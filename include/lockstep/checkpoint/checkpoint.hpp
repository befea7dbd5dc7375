#pragma once

#include "lockstep/core/shape.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

/// `/state`: where a run stands. Written canonically, with a checksum over all of it.
struct TrainingState {
  std::int64_t step = 0;      ///< optimizer steps done
  std::int64_t epoch = 0;     ///< epoch the next step belongs to
  std::int64_t position = 0;  ///< first position of that epoch not yet taken
  std::int64_t samples = 0;   ///< samples seen in all
  std::int64_t seed = 0;
  std::int64_t world_size = 1;
  std::int64_t global_batch = 0;
  double epoch_loss = 0;  ///< partial sums of this epoch
  double epoch_top1 = 0;
  double epoch_top5 = 0;
  double epoch_samples = 0;
  double best_top1 = -1;  ///< best validation top-1, a fraction; -1: none yet
  std::int64_t best_step = -1;
  std::int64_t last_eval_step = -1;  ///< the last step that was evaluated; -1: none yet
  double loss_scale = 0;             ///< of the next step; 0: none, as it is not fp16
  std::int64_t loss_scale_good_steps = 0;
  std::int64_t skipped_steps = 0;  ///< steps whose scaled gradients overflowed
  std::uint32_t data_identity = 0;
  std::uint32_t model_identity = 0;  ///< Graph::fingerprint()
  std::string model;
  std::string optimizer;
  std::string config;   ///< the whole resolved configuration, as --print-config prints it
  std::string version;  ///< the program's
  /// Compute::convolutions(); empty in files of programs that had none.
  std::optional<std::string> convolutions = {};
  /// Compute::all_reduce(); empty in files of programs that did not store it.
  std::optional<std::string> all_reduce = {};
  friend bool operator==(const TrainingState&, const TrainingState&) = default;
};

/// What a checkpoint file holds beside tensors.
struct CheckpointInfo {
  std::vector<float> mean;
  std::vector<float> std;
  std::int64_t classes = 0;
  std::vector<std::string> class_names;
  std::optional<TrainingState> state;
  friend bool operator==(const CheckpointInfo&, const CheckpointInfo&) = default;
};

/// A whole file. A weights-only file has `model` alone.
struct Checkpoint : CheckpointInfo {
  std::vector<NamedTensor> model;  ///< parameters and running statistics, torchvision's names
  std::map<std::string, std::vector<NamedTensor>> optimizer;  ///< by slot
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

inline constexpr const char* model_group = "/model";
/// Where a slot's tensors are.
[[nodiscard]] std::string slot_group(const std::string& slot);

/// A tensor and the group it is in: model_group or slot_group().
struct StoredTensor {
  std::string group;
  NamedTensor tensor;
};
/// The tensors of a file, one after another, those of a group together; nullopt after the last.
using NextTensor = std::function<std::optional<StoredTensor>()>;
[[nodiscard]] NextTensor tensors_of(Checkpoint checkpoint);

/// What is called while a file is written; any may be empty.
struct WriteHooks {
  /// After each few MiB, so that a slow disk can be told from one that hangs.
  std::function<void()> on_piece;
  /// Last before the file gets its name; where it throws, nothing is published.
  std::function<void()> before_publish;
};
/// Writes to a temporary name in the same directory, flushes, fsyncs, renames, fsyncs the
/// directory. Error(cannot_write) leaves nothing behind under `path` that was not there, and so do
/// errors of `next`. The same tensors give the same bytes.
void write_checkpoint(const std::string& path, const CheckpointInfo& info, const NextTensor& next,
                      const WriteHooks& hooks = {});
void write_checkpoint(const std::string& path, const Checkpoint& checkpoint);

enum class CheckpointUse {
  weights,  ///< eval, --init-from: /model is enough
  resume,   ///< complete, every checksum right
};

/// An open file whose tensors are read one at a time. All of it: Error(no_input) where absent or
/// unreadable, Error(bad_input) where it does not verify (checksum, truncated, NaN in a tensor,
/// wrong type); the text names the dataset. Checksums that are there are always checked.
class CheckpointReader final {
 public:
  CheckpointReader(const std::string& path, CheckpointUse use);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;

  [[nodiscard]] const CheckpointInfo& info() const noexcept;
  struct Tensor {
    std::string name;
    Shape shape;
  };
  /// In the file's order.
  [[nodiscard]] const std::vector<Tensor>& model() const noexcept;
  [[nodiscard]] const std::map<std::string, std::vector<Tensor>>& optimizer() const noexcept;
  [[nodiscard]] std::vector<float> read(const std::string& group, const Tensor& tensor) const;
  /// Reads every tensor, and keeps none.
  void verify() const;

 private:
  struct Contents;
  std::unique_ptr<Contents> contents_;
};

/// All of it at once.
[[nodiscard]] Checkpoint read_checkpoint(const std::string& path, CheckpointUse use);

}  // namespace lockstep
