#include "lockstep/health/straggler_watch.hpp"

namespace lockstep {

RankTimes StragglerWatch::take() {
  const RankTimes mine = times_.summary();
  times_.clear();
  return mine;
}

std::vector<StragglerReport> StragglerWatch::compare(const RankTimes& mine, std::int64_t step,
                                                     std::int64_t epoch) {
  if (options_.factor <= 0) return {};
  static_assert(sizeof(RankTimes) % sizeof(double) == 0);
  constexpr std::size_t words = sizeof(RankTimes) / sizeof(double);
  std::vector<RankTimes> all(static_cast<std::size_t>(comm_.size()));
  comm_.all_gather_buffer(
      {.data = &mine, .count = words, .type = ElementType::f64},
      {.data = all.data(), .count = words * all.size(), .type = ElementType::f64});
  std::vector<StragglerReport> reports;
  for (const Straggler& slow : find_stragglers(all, options_.factor)) {
    const auto rank = static_cast<std::size_t>(slow.rank);
    slow_hosts_.push_back(options_.hosts[rank]);
    reports.push_back({.step = step,
                       .epoch = epoch,
                       .straggler = slow,
                       .host = options_.hosts[rank],
                       .times = all[rank]});
  }
  return reports;
}

}  // namespace lockstep
