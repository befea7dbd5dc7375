#pragma once

#include "lockstep/engine/convolution_choices.hpp"
#include "step.hpp"
#include "winograd_layouts.hpp"
#include "winograd_passes.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::cpu {

/// A 3x3 convolution of stride 1, one group, or one of its gradients. Source and target are in fp32
/// or bf16; the weight, its gradient and all arithmetic are in fp32.
struct WinogradProblem {
  ConvolutionStep step = ConvolutionStep::forward;
  Desc source;  ///< (N, C, H, W), in the format of the direct algorithm
  Desc target;  ///< (N, K, P, Q), likewise
  std::int64_t padding = 0;
  bool bias = false;
};

/// How a step runs by Winograd's algorithm. Threads form teams, and each team computes its part of
/// the tiles, block by block, so that the transformed values of a block stay in a cache.
///
/// If the transformed filter is small, it is transformed once and each thread is a team. If it is
/// large, the members of a team share the transformed source of a block; each transforms the filter
/// for a panel of the result's channels at a time, and computes those. The weight gradient of a
/// large filter has one team, whose members compute panels of the gradient.
class WinogradPlan final {
 public:
  WinogradPlan(const WinogradProblem& problem, int threads);

  // Formats of the source, the target (or their gradients) and the weight (or its gradient).
  [[nodiscard]] const Desc& source_desc() const noexcept { return source_; }
  [[nodiscard]] const Desc& target_desc() const noexcept { return target_; }
  [[nodiscard]] const Desc& weight_desc() const noexcept { return weight_; }
  [[nodiscard]] Desc scratch_desc() const;

 private:
  friend class WinogradStep;

  /// Sets the formats and returns the lanes.
  int choose_formats(const WinogradProblem& problem);
  void choose_blocks();
  void place();
  [[nodiscard]] bool is_for_weight() const noexcept {
    return step_ == ConvolutionStep::weight_gradient;
  }
  [[nodiscard]] int teams() const noexcept { return threads_ / members_; }
  [[nodiscard]] std::int64_t panels() const noexcept;
  /// A thread's row for the bias (forward), or for its part of the bias's gradient.
  [[nodiscard]] float* bias_row(float* scratch, int thread) const noexcept;
  /// Tiles [first, last) of a team.
  [[nodiscard]] TileRange tiles_of(int team) const noexcept;

  /// Scratch memory of some matrices: (copies, points, rows, channels).
  struct Area {
    std::size_t offset = 0;  ///< in values
    std::int64_t rows = 0;
    std::int64_t channels = 0;
    std::int64_t stride = 0;  ///< from a matrix to the next
    std::int64_t size = 0;    ///< of a copy
    [[nodiscard]] PointMatrices matrices(float* scratch, int copy) const noexcept;
  };
  [[nodiscard]] Area take(std::int64_t copies, std::int64_t rows, std::int64_t channels);

  ConvolutionStep step_;
  bool bias_;                  ///< whether the step reads or writes it
  std::int64_t out_channels_;  ///< of the convolution
  Desc source_;
  Desc target_;
  Desc weight_;
  PixelLayout input_;   ///< what the filter reads; for the weight gradient, the source
  PixelLayout output_;  ///< what it computes; for the weight gradient, the target's gradient
  FilterLayout filter_;
  TileGrid grid_;
  int threads_;
  int members_ = 1;                  ///< of a team
  bool whole_filter_ = true;         ///< whether products take all channels of the result at once
  std::int64_t panel_channels_ = 0;  ///< of a product
  std::int64_t rows_ = 0;            ///< tiles of a block
  std::int64_t blocks_ = 0;          ///< of a team
  Area filter_area_;  ///< a copy for all, or one per thread; for the weight gradient, one per team
  Area input_area_;   ///< a copy per team
  Area output_area_;  ///< a copy per thread; for the weight gradient, one per team
  std::size_t bias_offset_ = 0;  ///< of a row of the result's channels per thread
  std::size_t scratch_ = 0;      ///< values
};

class WinogradStep final : public Step {
 public:
  struct Operands {
    dnnl::memory input;      ///< source; for the gradient of the source, the target's gradient
    dnnl::memory weight;     ///< written by the weight gradient
    dnnl::memory output;     ///< target or gradient; only read by the weight gradient
    dnnl::memory bias = {};  ///< (K,), like the weight; empty: none
    dnnl::memory scratch;    ///< of WinogradPlan::scratch_desc()
  };
  WinogradStep(std::string name, const WinogradPlan& plan, Operands operands);
  void run() override;
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  void bind() override;

 private:
  class Member;

  std::string name_;
  WinogradPlan plan_;
  Operands operands_;
  const void* input_ = nullptr;
  float* weight_ = nullptr;
  float* bias_ = nullptr;
  std::byte* output_ = nullptr;
  float* scratch_ = nullptr;
};

}  // namespace lockstep::cpu
