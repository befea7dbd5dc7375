#pragma once

#include <cstdint>

namespace lockstep {

/// The order of one epoch: a keyed bijection over [0, samples) that needs no table, a pure function
/// of (seed, epoch, position), independent of world size, threads and loader. With block > 1
/// blocks of that many consecutive samples are permuted, each block's samples staying together.
class SampleOrder final {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed, std::int64_t block = 1) noexcept;

  /// Sample at `position` in [0, samples) of `epoch`.
  [[nodiscard]] std::int64_t at(std::int64_t epoch, std::int64_t position) const noexcept;
  /// Its inverse: the position in `epoch` at which `sample` comes.
  [[nodiscard]] std::int64_t position_of(std::int64_t epoch, std::int64_t sample) const noexcept;
  [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t block_;
};

}  // namespace lockstep
