#pragma once

#include <cstdint>

namespace lockstep {

/// Sample order of an epoch: a keyed bijection over [0, samples) without a table. A pure function
/// of (seed, epoch, position), independent of world size, threads and loader. With block > 1,
/// permutes blocks of that many consecutive samples and keeps each block together.
class SampleOrder final {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed, std::int64_t block = 1) noexcept;

  /// Sample at `position` in [0, samples) of `epoch`.
  [[nodiscard]] std::int64_t at(std::int64_t epoch, std::int64_t position) const noexcept;
  /// Inverse of at(): the position of `sample` in `epoch`.
  [[nodiscard]] std::int64_t position_of(std::int64_t epoch, std::int64_t sample) const noexcept;
  [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t block_;
};

}  // namespace lockstep
