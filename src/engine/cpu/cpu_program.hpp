#pragma once

#include "../lowering/program.hpp"
#include "engine_state.hpp"
#include "lockstep/engine/program.hpp"
#include "loss.hpp"
#include "program_builder.hpp"
#include "statistics.hpp"

#include <memory>
#include <span>
#include <vector>

namespace lockstep::cpu {

class CpuProgram final : public Program {
 public:
  CpuProgram(std::shared_ptr<EngineState> state, const ProgramOptions& options);
  ~CpuProgram() override;
  CpuProgram(const CpuProgram&) = delete;
  CpuProgram& operator=(const CpuProgram&) = delete;

  [[nodiscard]] std::int64_t batch_size() const noexcept override { return options_.batch_size; }
  void forward(const Batch& batch) override;
  [[nodiscard]] BatchMetrics metrics() override;
  void backward(const BackwardOptions& options) override;
  [[nodiscard]] std::vector<StepTime> time_steps(const Batch& batch) override;
  [[nodiscard]] std::span<const float> batch_statistics() override {
    return statistics_.statistics.concatenated();
  }
  [[nodiscard]] std::span<const float> logits() override { return loss_.logits(); }
  [[nodiscard]] std::size_t activation_bytes() const noexcept override {
    return buffers_.plan.total_bytes;
  }

 private:
  void run(Step& step);
  void run(const std::vector<ListedStep>& steps, const BackwardOptions& options);
  void lower_all();
  void take(const Batch& batch);

  /// What a call passes to steps.
  struct Call {
    Targets targets;
    DroppedBlocks dropped;
    std::int64_t samples = 0;
    float loss_scale = 1.0F;
  };

  std::shared_ptr<EngineState> state_;
  ProgramOptions options_;
  GraphLoss graph_loss_;
  Call call_;
  Loss loss_;
  StatisticsBlock statistics_;
  dnnl::memory input_;  // the caller's, set in each call
  std::vector<ListedStep> forward_;
  std::vector<ListedStep> backward_;
  PlacedBuffers buffers_;
  int pool_key_ = 0;
};

}  // namespace lockstep::cpu
