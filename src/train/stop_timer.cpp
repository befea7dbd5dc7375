#include "lockstep/train/stop_timer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace lockstep {
namespace {

/// What a save's time may grow by on a file system that others use too.
constexpr double save_reserve = 1.5;
/// For the ranks to part and the launcher to end.
constexpr double end_reserve = 5;
/// How slowly a long step is forgotten.
constexpr double fading = 0.99;

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::string first_line_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::array<char, 128> line{};
  if (!pipe || std::fgets(line.data(), static_cast<int>(line.size()), pipe.get()) == nullptr) {
    return "";
  }
  std::string text(line.data());
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

void StopTimer::step_took(double seconds) noexcept {
  step_ = std::max(seconds, fading * step_);
}

void StopTimer::save_took(double seconds) noexcept {
  save_ = measured_ ? std::max(save_, seconds) : seconds;
  measured_ = true;
}

double StopTimer::needed(bool saving) const noexcept {
  return 2 * step_ + (saving ? 2 : 1) * save_reserve * save_ + end_reserve;
}

bool StopTimer::is_due(Clock::time_point now, bool saving) const noexcept {
  return end_ && std::chrono::duration<double>(*end_ - now).count() <= needed(saving);
}

std::optional<StopTimer::Clock::time_point> end_of_time(StopTimer::Clock::time_point begin,
                                                        double limit) {
  const auto after = [](StopTimer::Clock::time_point from, double seconds) {
    return from + std::chrono::duration_cast<StopTimer::Clock::duration>(
                      std::chrono::duration<double>(seconds));
  };
  std::optional<StopTimer::Clock::time_point> end;
  if (limit > 0) end = after(begin, limit);
  if (const auto left = slurm_seconds_left()) {
    const auto of_slurm = after(StopTimer::Clock::now(), *left);
    end = end ? std::min(*end, of_slurm) : of_slurm;
  }
  return end;
}

std::optional<double> parse_time_left(const std::string& text) {
  std::string_view rest = text;
  double days = 0;
  if (const auto dash = rest.find('-'); dash != std::string_view::npos) {
    const auto value = number(rest.substr(0, dash));
    if (!value) return std::nullopt;
    days = *value;
    rest.remove_prefix(dash + 1);
  }
  double seconds = 0;
  for (int parts = 1; parts <= 3; ++parts) {
    const auto colon = std::min(rest.find(':'), rest.size());
    const auto value = number(rest.substr(0, colon));
    if (!value) return std::nullopt;
    seconds = 60 * seconds + *value;
    if (colon == rest.size()) return 86400 * days + seconds;
    rest.remove_prefix(colon + 1);
  }
  return std::nullopt;
}

std::optional<double> slurm_seconds_left() {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr || !number(job)) return std::nullopt;
  if (const char* end = std::getenv("SLURM_JOB_END_TIME"); end != nullptr) {
    const auto at = number(end);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    if (at) return *at - std::chrono::duration<double>(now).count();
  }
  // Its controller may be busy; a run does not wait for it.
  return parse_time_left(
      first_line_of(fmt::format("timeout 20 squeue -h -j {} -o %L 2>/dev/null", job)));
}

}  // namespace lockstep
