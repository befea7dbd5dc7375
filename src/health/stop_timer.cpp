#include "lockstep/health/stop_timer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

namespace lockstep {
namespace {

/// Factor for a save's time on a shared file system.
constexpr double save_reserve = 1.5;
/// Seconds for the ranks to exit and the launcher to end.
constexpr double end_reserve = 5;
/// Decay per step of the longest recent step.
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

double StopTimer::needed(const Ahead& ahead) const noexcept {
  return static_cast<double>(1 + ahead.steps) * step_ +
         (ahead.saving ? 2 : 1) * save_reserve * save_ + end_reserve;
}

bool StopTimer::is_due(Clock::time_point now, const Ahead& ahead) const noexcept {
  return end_ && std::chrono::duration<double>(*end_ - now).count() <= needed(ahead);
}

TimeAllowed time_allowed(StopTimer::Clock::time_point begin, double limit) {
  const auto after = [](StopTimer::Clock::time_point from, double seconds) {
    return from + std::chrono::duration_cast<StopTimer::Clock::duration>(
                      std::chrono::duration<double>(seconds));
  };
  const SlurmTime slurm = ask_slurm_for_time();
  TimeAllowed allowed{.end = std::nullopt, .problem = slurm.problem};
  if (limit > 0) allowed.end = after(begin, limit);
  if (slurm.seconds_left) {
    const auto end = after(StopTimer::Clock::now(), *slurm.seconds_left);
    allowed.end = allowed.end ? std::min(*allowed.end, end) : end;
  }
  return allowed;
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

SlurmTime ask_slurm_for_time() {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job == nullptr || !number(job)) return {};
  if (const char* end = std::getenv("SLURM_JOB_END_TIME"); end != nullptr) {
    const auto at = number(end);
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    if (at)
      return {.seconds_left = *at - std::chrono::duration<double>(now).count(), .problem = ""};
  }
  // Slurm's controller may be busy; do not wait long for it.
  constexpr int attempts = 3;
  std::string answer;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    answer = first_line_of(fmt::format("timeout 20 squeue -h -j {} -o %L 2>&1", job));
    if (const auto left = parse_time_left(answer)) return {.seconds_left = *left, .problem = ""};
    if (answer == "UNLIMITED" || answer == "NOT_SET") return {};
  }
  return {.seconds_left = std::nullopt,
          .problem = fmt::format("Slurm does not tell how long job {} may run (squeue says '{}'); "
                                 "give --time-limit, so that the run saves and stops in time",
                                 job, answer)};
}

}  // namespace lockstep
