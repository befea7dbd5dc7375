#include "straggler_watch.hpp"

#include "host_list.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string own_times(const RankTimes& times) {
  const auto text = [](const char* name, const TimeSummary& summary) {
    return fmt::format("{} {:.1f}/{:.1f} ms", name, 1e3 * summary.p50, 1e3 * summary.max);
  };
  return fmt::format("a step's p50/max: {}, {}, {}", text("data", times.data),
                     text("compute", times.compute), text("communication", times.communication));
}

}  // namespace

void StragglerWatch::close_epoch(std::int64_t step, std::int64_t epoch, RunReporter& reporter) {
  static_assert(sizeof(RankTimes) % sizeof(double) == 0);
  constexpr std::size_t words = sizeof(RankTimes) / sizeof(double);
  const RankTimes mine = times_.summary();
  times_.clear();
  reporter.note(fmt::format("epoch {}: {}", epoch + 1, own_times(mine)));
  std::vector<RankTimes> all(static_cast<std::size_t>(comm_.size()));
  comm_.all_gather_buffer(
      {.data = &mine, .count = words, .type = ElementType::f64},
      {.data = all.data(), .count = words * all.size(), .type = ElementType::f64});
  for (const Straggler& slow : find_stragglers(all, options_.factor)) {
    const std::string& host = options_.hosts[static_cast<std::size_t>(slow.rank)];
    slow_hosts_.push_back(host);
    reporter.straggler({.step = step,
                        .epoch = epoch,
                        .straggler = slow,
                        .host = host,
                        .times = all[static_cast<std::size_t>(slow.rank)]});
  }
}

void StragglerWatch::close_run(RunReporter& reporter) const {
  if (slow_hosts_.empty()) return;
  reporter.say(fmt::format("slow hosts of this run: --exclude={}", host_list(slow_hosts_)));
}

}  // namespace lockstep
