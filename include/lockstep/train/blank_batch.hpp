#pragma once

#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/batch.hpp"
#include "lockstep/core/shape.hpp"

#include <cstddef>
#include <cstdint>

namespace lockstep {

/// Blank input for a rank without data when the engine's programs contain collectives. The caller
/// does not count its results.
class BlankBatch final {
 public:
  BlankBatch() = default;
  BlankBatch(const Shape& input, std::int64_t largest)
      : values_(static_cast<std::size_t>(largest * input.elements())),
        labels_(static_cast<std::size_t>(largest)) {}
  [[nodiscard]] Batch of(std::int64_t size) const noexcept {
    return {.values = values_.data(), .targets = {.labels = labels_.data()}, .size = size};
  }

 private:
  AlignedBuffer<float> values_;
  AlignedBuffer<std::int32_t> labels_;
};

}  // namespace lockstep
