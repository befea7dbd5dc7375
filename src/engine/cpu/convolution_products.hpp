#pragma once

#include "onednn.hpp"
#include "step.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::cpu {

/// How a convolution's filter goes over its source.
struct Window {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;

  /// Whether each place of the source is seen once, so that the source is its own patches.
  [[nodiscard]] bool is_point() const noexcept {
    return height == 1 && width == 1 && stride == 1 && padding == 0;
  }
  /// Of stride 1 and square: how the turned filter goes over the target's gradient.
  [[nodiscard]] Window turned() const noexcept {
    return {.height = height, .width = width, .stride = 1, .padding = height - 1 - padding};
  }
};

// A convolution's gradients as one product of matrices each, in bf16 with channels last, for where
// oneDNN 2.6's own primitives are slow: with AMX they go over the target row by row, 32 places at a
// time, so that short rows leave most of them empty, and take up to several times as long as a
// product where the filter is a point.

/// Of the target's gradient, (K, N P Q), and what each place of the target sees of the source,
/// (N P Q, R S C): the weight's gradient, (K, R S C).
struct WeightProduct {
  Window window;
  Desc source;    ///< (N, C, H, W)
  Desc gradient;  ///< (N, K, P, Q)
  Desc weight;    ///< (K, C, R, S), in fp32
  Desc gradient_rows;
  Desc patches;
  Desc weight_rows;
  dnnl::matmul::primitive_desc product;

  /// `direct`: the convolution's own primitive. Empty where that is as quick, or has other formats.
  [[nodiscard]] static std::optional<WeightProduct> make(
      const dnnl::convolution_backward_weights::primitive_desc& direct, const Window& window,
      const dnnl::engine& engine);
  /// Whatever the convolution's own primitive is like.
  [[nodiscard]] static WeightProduct make(const Dims& source, const Dims& gradient,
                                          const Window& window, const dnnl::engine& engine);
};

/// Of what each place of the source sees of the target's gradient, (N H W, R S K), and the weight,
/// turned, (R S K, C): the source's gradient. Where the filter is a point with a stride, of the
/// gradient itself, (N P Q, K): the gradient of the places that are seen, (N P Q, C).
struct DataProduct {
  Window window;
  Desc gradient;  ///< (N, K, P, Q)
  Desc weight;    ///< (K, C, R, S)
  Desc source;    ///< (N, C, H, W)
  Desc patches;
  Desc weight_rows;
  Desc source_rows;
  dnnl::matmul::primitive_desc product;

  /// As WeightProduct's.
  [[nodiscard]] static std::optional<DataProduct> make(
      const dnnl::convolution_backward_data::primitive_desc& direct, const Window& window,
      const dnnl::engine& engine);
  [[nodiscard]] static DataProduct make(const Dims& source, const Dims& gradient,
                                        const Window& window, const dnnl::engine& engine);
};

/// Copies values of bf16 from one tensor to places of another.
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

/// target, (N P Q, R S C) = what each place of the convolution's target sees of the source,
/// (N, C, H, W), channels last, in bf16; zero beyond its edges.
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
  std::ptrdiff_t rows_a_sample_;  ///< of the convolution's target
  std::ptrdiff_t row_width_;
  std::ptrdiff_t rows_;
};

/// target, (R S K, C) = weight, (K, C, R, S), each filter turned by half, channels last, in bf16.
class TurnStep final : public PlacingStep {
 public:
  TurnStep(const dnnl::memory& weight, const dnnl::memory& target);
  void run() override;
  [[nodiscard]] std::string_view name() const noexcept override { return "turn"; }

 private:
  std::ptrdiff_t filters_;
  std::ptrdiff_t channels_;
  std::ptrdiff_t points_;  ///< of a filter
};

/// target, (N, C, H, W) = what is known of the places that a point's convolution sees,
/// (N P Q, C), channels last, in bf16; zero where it sees nothing.
class SpreadStep final : public PlacingStep {
 public:
  /// `places`: (N, K, P, Q) of the convolution's target.
  SpreadStep(const dnnl::memory& source, const dnnl::memory& target, const Dims& places,
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
