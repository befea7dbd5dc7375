#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Why a file's "mean" or "std" cannot be that of pixels in [0, 1], with the values and a remedy;
/// empty if it can.
[[nodiscard]] std::string fault_in_statistic(std::string_view name, std::vector<float> values);

/// Exact mean and standard deviation of pixels. Keeps one histogram per channel, so partial results
/// summed in any order give the same bits.
class PixelStatistics final {
 public:
  explicit PixelStatistics(std::int64_t channels)
      : channels_(static_cast<std::size_t>(channels)), counts_(channels_ * 256) {}

  /// Adds pixels, channel fastest.
  void add(std::span<const std::byte> pixels) noexcept {
    std::uint64_t* counts = counts_.data();
    for (std::size_t i = 0; i < pixels.size(); i += channels_) {
      for (std::size_t c = 0; c < channels_; ++c) {
        ++counts[c * 256 + std::to_integer<std::size_t>(pixels[i + c])];
      }
    }
  }
  /// (C, 256); the caller all-reduces it.
  [[nodiscard]] std::span<std::uint64_t> counts() noexcept { return counts_; }

  /// (C,), for values scaled to [0, 1]; 0 without pixels.
  [[nodiscard]] std::vector<float> mean() const;
  /// (C,), population standard deviation; 1 if all values are equal, so it is a valid divisor.
  [[nodiscard]] std::vector<float> standard_deviation() const;

 private:
  struct Moments {
    long double mean = 0;
    long double variance = 0;
  };
  [[nodiscard]] Moments moments(std::size_t channel) const noexcept;

  std::size_t channels_;
  std::vector<std::uint64_t> counts_;
};

}  // namespace lockstep
