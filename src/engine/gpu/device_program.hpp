#pragma once

#include "../lowering/program.hpp"
#include "device_targets.hpp"
#include "lockstep/engine/program.hpp"
#include "loss_block.hpp"
#include "program_builder.hpp"
#include "recorded_steps.hpp"
#include "sample_values.hpp"
#include "statistics_block.hpp"

#include <memory>
#include <optional>
#include <span>

namespace lockstep::gpu {

class DeviceProgram final : public Program {
 public:
  DeviceProgram(std::shared_ptr<EngineState> state, const ProgramOptions& options);
  DeviceProgram(const DeviceProgram&) = delete;
  DeviceProgram& operator=(const DeviceProgram&) = delete;
  /// Waits for a forward whose results nobody uses, or, after an error of its collectives, for what
  /// is left of it.
  ~DeviceProgram() override;

  [[nodiscard]] std::int64_t batch_size() const noexcept override { return options_.batch_size; }
  void forward(const Batch& batch) override;
  [[nodiscard]] BatchMetrics metrics() override;
  void backward(const BackwardOptions& options) override;
  [[nodiscard]] std::vector<StepTime> time_steps(const Batch& batch) override;
  [[nodiscard]] std::span<const float> batch_statistics() override;
  [[nodiscard]] std::span<const float> logits() override;
  [[nodiscard]] std::size_t activation_bytes() const noexcept override {
    return lists_.plan.total_bytes;
  }

 private:
  void lower_all();
  /// Queues the copies of the batch.
  [[nodiscard]] LaunchContext take(const Batch& batch);
  [[nodiscard]] LaunchContext launch_context(const BackwardOptions& options);
  /// Null if no times are wanted now.
  [[nodiscard]] DeviceTimeline* timeline_now() const noexcept;
  /// Blocks until the last forward's results are in host memory.
  void wait();
  /// Blocks until then if other ranks take part in the forward. Error if they do not.
  void await_ranks();

  std::shared_ptr<EngineState> state_;
  ProgramOptions options_;
  GraphLoss graph_loss_;
  StatisticsBlock statistics_;
  LossBlock loss_;
  DeviceTargets targets_;                ///< of the last forward
  SampleValues<std::uint64_t> dropped_;  ///< which blocks the last forward drops
  ProgramBuilder::Program lists_;
  Tensor values_;  ///< fp32 values of the input
  ImageExtent input_extent_{};
  std::size_t value_bytes_ = 0;
  std::optional<RecordedSteps> forward_;  ///< lists_.forward without the input's step
  std::optional<RecordedSteps> backward_;
  DeviceBatch input_ = {};          ///< of the last forward, if its batch was pixels
  std::unique_ptr<Event> fetched_;  ///< the last forward's results are in host memory
  std::int64_t samples_ = 0;
  bool pending_ = false;
};

}  // namespace lockstep::gpu
