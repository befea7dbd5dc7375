#pragma once

#include "channel_rows.hpp"
#include "lockstep/core/aligned_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::cpu {

/// A batch norm's passes over a (N, C, H, W) tensor of fp32 or bf16; arithmetic is in fp32. The ops
/// after the norm run in the same pass: an addition, and a ReLU whose mask has one bit per value.
/// Tensors have one layout and type; outputs may overwrite inputs. `mean` and other per-channel
/// arrays are padded like the layout.
class NormPasses final {
 public:
  NormPasses(const Desc& desc, int threads);

  [[nodiscard]] const ChannelRows& rows() const noexcept { return rows_; }

  /// Copies one value of each channel to `to` (C,).
  void first_values(const void* source, float* to) const;

  /// (2, C) sums of source - reference and of its square.
  [[nodiscard]] std::span<double> sum_values(const void* source, const float* reference);

  // `row_factors`, if not null, has a factor for each pixel of the batch, (N * H * W).

  /// target = ((source - mean) * slope + offset) (* row factor) (+ addend), then max(target, 0) if
  /// `relu`.
  struct Normalization {
    const void* source;
    const void* addend;  ///< null: none
    const float* mean;
    const float* slope;
    const float* offset;
    bool relu;
    std::uint8_t* mask;  ///< the ReLU's; null: not needed
    void* target;
    const float* row_factors = nullptr;
  };
  void normalize(const Normalization& of) const;

  /// (2, C) sums of f * g and of f * g * (source - mean), where g is the gradient (+ addend) where
  /// the mask has a bit, else 0, and f the row factor or 1.
  struct GradientSums {
    const void* source;
    const void* gradient;
    const void* addend;  ///< null: none
    const float* mean;
    const std::uint8_t* mask;  ///< null: all bits
    void* masked;              ///< receives g; required with an addend
    const float* row_factors = nullptr;
  };
  [[nodiscard]] std::span<double> sum_gradients(const GradientSums& of);

  /// target = factor * f * g + slope * (source - mean) + offset
  struct Propagation {
    const void* source;
    const void* gradient;
    const std::uint8_t* mask;  ///< null: all bits
    const float* mean;
    const float* slope;
    const float* offset;
    const float* factor;
    void* target;
    const float* row_factors = nullptr;
  };
  void propagate(const Propagation& of) const;

 private:
  template <typename Loop>
  void over_units(const Loop& loop) const;
  /// Writes to sums_.
  template <typename Loop>
  void sums_over_units(const Loop& loop);

  ChannelRows rows_;
  bool bf16_;
  std::size_t channels_;
  AlignedBuffer<float> lane_sums_;  ///< (threads, 2, row), over some rows
  AlignedBuffer<double> parts_;     ///< (threads, 2, C)
  AlignedBuffer<double> sums_;      ///< (2, C)
};

}  // namespace lockstep::cpu
