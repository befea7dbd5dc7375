#pragma once

#include "build_graph.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/runtime/phase_board.hpp"
#include "lockstep/runtime/trace.hpp"
#include "lockstep/train/batch_geometry.hpp"
#include "lockstep/train/train_step.hpp"
#include "lockstep/train/training_session.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The loader and the training step for images of the current size, made anew where
/// --image-size-schedule changes the size. Parameters, optimizer and statistics stay as they are.
class TrainingSteps final {
 public:
  /// All references outlive the object.
  struct Parts {
    const Config& config;  ///< resolved
    const BatchGeometry& geometry;
    const std::vector<SizedGraph>& graphs;
    TrainingSession& session;
    Communicator& comm;
    const Dataset& data;
    LoaderOptions loading;  ///< with any image
    PhaseBoard& board;
    TraceRecorder* trace;                          ///< null: no trace
    std::int64_t last_step;                        ///< of the run
    std::function<void(const std::string&)> warn;  ///< as TrainStepOptions::warn
  };

  /// For the state's epoch. Also compiles the largest later size, so that the engine's memory
  /// suffices from the start. Collective; errors as TrainStep.
  TrainingSteps(Parts parts, const TrainingState& state);

  [[nodiscard]] TrainStep& step() noexcept { return *step_; }
  /// Of the current size.
  [[nodiscard]] const ImageShape& image() const noexcept { return parts_.loading.image; }
  /// The most that the current size or a later one needs.
  [[nodiscard]] std::size_t activation_bytes() const noexcept { return activation_bytes_; }

  /// The last step of the current size: the loader ends there, on all ranks alike.
  [[nodiscard]] std::int64_t last_step() const noexcept { return last_step_; }
  /// Whether images have another size from `at` on.
  [[nodiscard]] bool change_at(EpochPosition at) const noexcept;
  /// Makes loader and step for the state's epoch, at its start. Collective; errors as TrainStep.
  void change(const TrainingState& state);
  /// "images: 128x128, 192x192 after 60 epochs; now 128x128".
  [[nodiscard]] std::string description() const;

 private:
  [[nodiscard]] std::size_t index_of(std::int64_t epoch) const noexcept;
  [[nodiscard]] std::size_t largest_bytes_after(std::size_t index);

  Parts parts_;
  std::size_t activation_bytes_;
  std::int64_t last_step_ = 0;
  std::unique_ptr<Loader> loader_;
  std::optional<TrainStep> step_;
};

}  // namespace lockstep
