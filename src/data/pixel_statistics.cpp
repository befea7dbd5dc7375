#include "lockstep/data/pixel_statistics.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace lockstep {

std::string fault_in_statistic(std::string_view name, std::vector<float> values) {
  const bool is_divisor = name == "std";
  const auto is_possible = [&](float value) {
    // A smaller deviation than this is no deviation of bytes: values would be beyond 10^6.
    return value <= 1 && (is_divisor ? value >= 1e-6F : value >= 0);
  };
  if (std::ranges::all_of(values, is_possible)) return {};
  const std::string found =
      fmt::format("{} is {} (it must be {}, as pixels are)", name, fmt::join(values, ", "),
                  is_divisor ? "from 1e-6 to 1" : "from 0 to 1");
  for (float& value : values) value /= 255;
  if (!std::ranges::all_of(values, is_possible)) return found + "; fix it";
  return fmt::format("{}; divide by 255: {:.6g}", found, fmt::join(values, ", "));
}

PixelStatistics::Moments PixelStatistics::moments(std::size_t channel) const noexcept {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
  for (std::uint64_t value = 0; value < 256; ++value) {
    count += counts_[channel * 256 + value];
    sum += counts_[channel * 256 + value] * value;
  }
  if (count == 0) return {};
  const long double mean = static_cast<long double>(sum) / static_cast<long double>(count);
  long double squares = 0;
  for (std::size_t value = 0; value < 256; ++value) {
    const long double distance = static_cast<long double>(value) - mean;
    squares += static_cast<long double>(counts_[channel * 256 + value]) * distance * distance;
  }
  return {.mean = mean / 255,
          .variance = squares / static_cast<long double>(count) / (255.0L * 255.0L)};
}

std::vector<float> PixelStatistics::mean() const {
  std::vector<float> result;
  for (std::size_t c = 0; c < channels_; ++c) {
    result.push_back(static_cast<float>(moments(c).mean));
  }
  return result;
}

std::vector<float> PixelStatistics::standard_deviation() const {
  std::vector<float> result;
  for (std::size_t c = 0; c < channels_; ++c) {
    const auto deviation = static_cast<float>(std::sqrt(moments(c).variance));
    result.push_back(deviation > 0 ? deviation : 1.0F);
  }
  return result;
}

}  // namespace lockstep
