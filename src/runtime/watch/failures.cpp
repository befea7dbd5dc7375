#include "failures.hpp"

#include "link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace lockstep::watch {
namespace {

/// How long the first failure waits for news of a lost rank.
constexpr double settling_seconds = 1;
/// A rank silent for this long may be lost.
constexpr double suspicious_seconds = 5;

/// Longer than it takes to find a silent node.
double longest_wait() noexcept {
  constexpr SilenceLimits limits;
  return suspicious_seconds +
         std::chrono::duration<double>(limits.connection + limits.host).count();
}

bool may_be_lost(const RankReport& report) noexcept {
  return report.state == RankReport::State::unreachable ||
         (report.present() && report.silent >= suspicious_seconds);
}

}  // namespace

void Failures::add(const Failure& failure, double now) {
  if (!any()) {
    since_ = now;
    first_ = failure;
  }
  ranks_.insert(failure.rank);
}

std::optional<Ending> Failures::ending(std::span<const RankReport> reports,
                                       std::span<const std::string> names, double now) const {
  if (!any() || age(now) < settling_seconds) return std::nullopt;
  if (age(now) < longest_wait() && std::ranges::any_of(reports, may_be_lost)) return std::nullopt;
  const std::size_t others = ranks_.size() - 1;
  const std::string more = others == 0 ? ""
                                       : fmt::format(" ({} other rank{} failed too; see the logs)",
                                                     others, others == 1 ? "" : "s");
  return Ending{.text = fmt::format("{}: {}{}", names[static_cast<std::size_t>(first_.rank)],
                                    first_.text, more),
                .status = first_.status};
}

}  // namespace lockstep::watch
