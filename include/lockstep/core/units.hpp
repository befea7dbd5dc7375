#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

/// Human-readable quantities.
namespace lockstep {

/// "1.3 GB/s", "90 MB/s", "270 kB/s"
[[nodiscard]] inline std::string rate_text(double bytes_per_second) {
  constexpr double mega = 1e6;
  constexpr double giga = 1e9;
  if (bytes_per_second < mega) return fmt::format("{:.0f} kB/s", bytes_per_second / 1e3);
  return bytes_per_second < giga ? fmt::format("{:.0f} MB/s", bytes_per_second / 1e6)
                                 : fmt::format("{:.1f} GB/s", bytes_per_second / giga);
}

/// "12.0 MB"
[[nodiscard]] inline std::string size_text(double bytes) {
  constexpr double giga = 1e9;
  return bytes < giga ? fmt::format("{:.1f} MB", bytes / 1e6)
                      : fmt::format("{:.1f} GB", bytes / giga);
}

/// "3.2 us", "15 ms", "2.5 s"
[[nodiscard]] inline std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  return fmt::format("{:.1f} s", seconds);
}

/// "0:42", "3:07:00"
[[nodiscard]] inline std::string format_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::clamp(std::ceil(seconds), 0.0, 1e9));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

/// "1 rank", "3 ranks"
[[nodiscard]] inline std::string count_text(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace lockstep
