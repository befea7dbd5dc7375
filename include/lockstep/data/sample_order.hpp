#pragma once

#include <cstdint>

namespace lockstep {

/// A sample of an epoch, and which of its copies (--repeated-augmentation).
struct SampleCopy {
  std::int64_t sample = 0;  ///< below 2^48
  std::int64_t copy = 0;    ///< below 2^15
  friend bool operator==(const SampleCopy&, const SampleCopy&) = default;

  /// Number for random streams, the sample's own for copy 0.
  [[nodiscard]] std::uint64_t key() const noexcept {
    return static_cast<std::uint64_t>(sample) | (static_cast<std::uint64_t>(copy) << 48U);
  }
};

/// Sample order of an epoch: a keyed bijection over [0, samples) without a table. A pure function
/// of (seed, epoch, position), independent of world size, threads and loader. With block > 1,
/// permutes blocks of that many consecutive samples and keeps each block together.
class SampleOrder final {
 public:
  SampleOrder(std::int64_t samples, std::uint64_t seed, std::int64_t block = 1) noexcept;

  /// Sample at `position` in [0, samples) of `epoch`.
  [[nodiscard]] std::int64_t at(std::int64_t epoch, std::int64_t position) const noexcept;
  /// Sample and copy at `position` of an epoch that holds `repeats` consecutive copies of each of
  /// its samples, 1 / `repeats` of all. As torchvision's RASampler.
  [[nodiscard]] SampleCopy copy_at(std::int64_t epoch, std::int64_t position,
                                   std::int64_t repeats) const noexcept {
    return {.sample = at(epoch, position / repeats), .copy = position % repeats};
  }
  [[nodiscard]] std::int64_t samples() const noexcept { return samples_; }

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t block_;
};

/// Position within its step of the i-th sample that the step reads. Consecutive positions hold the
/// `repeats` copies of a sample; the step reads the first copies of all its samples, then the
/// second copies, and so on, so that a micro-batch holds no sample twice if the step has at least
/// `repeats` of them. A permutation of [0, size).
[[nodiscard]] std::int64_t spread_copies(std::int64_t i, std::int64_t size,
                                         std::int64_t repeats) noexcept;

}  // namespace lockstep
