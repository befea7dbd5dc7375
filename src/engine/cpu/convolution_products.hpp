#pragma once

#include "onednn.hpp"
#include "step.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::cpu {

/// How a convolution's filter moves over its source.
struct Window {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;

  /// Whether a patch is a single position, so that the source is its own patch matrix.
  [[nodiscard]] bool is_point() const noexcept {
    return height == 1 && width == 1 && stride == 1 && padding == 0;
  }
  /// Stride 1 and a square filter only: how the rotated filter moves over the target's gradient.
  [[nodiscard]] Window rotated() const noexcept {
    return {.height = height, .width = width, .stride = 1, .padding = height - 1 - padding};
  }
};

// Gradients of convolutions as one matrix product each, in bf16 with channels last, for shapes
// where oneDNN 2.6's own primitives are slow. With AMX they process the target row by row, 32
// positions at once, so short rows leave most positions empty. For 1x1 filters they take up to
// several times as long as a product.

/// Weight gradient (K, R S C) = target's gradient (K, N P Q) times the source's patches, (N P Q, R
/// S C), one per position of the target.
struct WeightProduct {
  Window window;
  Desc source;    ///< (N, C, H, W)
  Desc gradient;  ///< (N, K, P, Q)
  Desc weight;    ///< (K, C, R, S), in fp32
  Desc gradient_rows;
  Desc patches;
  Desc weight_rows;
  dnnl::matmul::primitive_desc product;

  /// `direct`: oneDNN's own primitive. Empty if that is as fast, or its formats differ.
  [[nodiscard]] static std::optional<WeightProduct> make(
      const dnnl::convolution_backward_weights::primitive_desc& direct, const Window& window,
      const dnnl::engine& engine);
  /// For any shape, without a check of oneDNN's own primitive.
  [[nodiscard]] static WeightProduct make(const Dims& source, const Dims& gradient,
                                          const Window& window, const dnnl::engine& engine);
};

/// Source's gradient (N H W, C) = patches of the target's gradient (N H W, R S K), one per position
/// of the source, times the rotated weight (R S K, C). For 1x1 filters with a stride: (N P Q, C),
/// at the positions that the filter reads, = the target's gradient itself, (N P Q, K), times the
/// weight.
struct DataProduct {
  Window window;
  Desc gradient;  ///< (N, K, P, Q)
  Desc weight;    ///< (K, C, R, S)
  Desc source;    ///< (N, C, H, W)
  Desc patches;
  Desc weight_rows;
  Desc source_rows;
  dnnl::matmul::primitive_desc product;

  /// As WeightProduct::make.
  [[nodiscard]] static std::optional<DataProduct> make(
      const dnnl::convolution_backward_data::primitive_desc& direct, const Window& window,
      const dnnl::engine& engine);
  [[nodiscard]] static DataProduct make(const Dims& source, const Dims& gradient,
                                        const Window& window, const dnnl::engine& engine);
};

/// Copies bf16 values from one tensor to positions of another.
class PlacingStep : public Step {
 public:
  void bind() final;

 protected:
  PlacingStep(dnnl::memory source, dnnl::memory target);
  [[nodiscard]] const std::uint16_t* source() const noexcept { return source_; }
  [[nodiscard]] std::uint16_t* target() const noexcept { return target_; }

 private:
  dnnl::memory source_memory_;
  dnnl::memory target_memory_;
  const std::uint16_t* source_ = nullptr;
  std::uint16_t* target_ = nullptr;
};

/// target, (N P Q, R S C) = the patch of the source, (N, C, H, W), that each position of the
/// convolution's target reads. Channels last, bf16; zero beyond the source's edges.
class PatchesStep final : public PlacingStep {
 public:
  /// `places`: (N, K, P, Q) of the convolution's target.
  PatchesStep(const dnnl::memory& source, const dnnl::memory& target, const Dims& places,
              const Window& window);
  void run() override;
  [[nodiscard]] std::string_view name() const noexcept override { return "patches"; }

 private:
  void copy_row(std::ptrdiff_t row) const;

  Window window_;
  std::ptrdiff_t channels_;
  std::ptrdiff_t height_;
  std::ptrdiff_t width_;
  std::ptrdiff_t rows_per_sample_;  ///< of the convolution's target
  std::ptrdiff_t row_width_;
  std::ptrdiff_t rows_;
};

/// target, (R S K, C) = weight, (K, C, R, S), filters rotated by 180 degrees, channels last, bf16.
class RotateStep final : public PlacingStep {
 public:
  RotateStep(const dnnl::memory& weight, const dnnl::memory& target);
  void run() override;
  [[nodiscard]] std::string_view name() const noexcept override { return "turn"; }

 private:
  std::ptrdiff_t filters_;
  std::ptrdiff_t channels_;
  std::ptrdiff_t points_;  ///< of a filter
};

/// target, (N, C, H, W) = source, (N P Q, C), at the positions that a 1x1 convolution reads; zero
/// elsewhere. Channels last, bf16.
class ScatterStep final : public PlacingStep {
 public:
  /// `places`: (N, K, P, Q) of the convolution's target.
  ScatterStep(const dnnl::memory& source, const dnnl::memory& target, const Dims& places,
              const Window& window);
  void run() override;
  [[nodiscard]] std::string_view name() const noexcept override { return "spread"; }

 private:
  void write_row(std::ptrdiff_t row) const;

  std::ptrdiff_t stride_;
  std::ptrdiff_t channels_;
  std::ptrdiff_t height_;
  std::ptrdiff_t width_;
  std::ptrdiff_t seen_rows_;  ///< of a sample
  std::ptrdiff_t seen_width_;
  std::ptrdiff_t rows_;
};

}  // namespace lockstep::cpu
