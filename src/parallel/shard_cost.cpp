#include "lockstep/parallel/shard_cost.hpp"

namespace lockstep {

ShardCost shard_cost(const Config& config, const ArenaLayout& layout, int ranks,
                     std::size_t slots) {
  const std::size_t whole = sizeof(float) * layout.size();
  const auto micro_steps = static_cast<double>(config.accumulate);
  // Of a sum or a gather, a rank sends the other ranks' parts once.
  if (config.shard == ShardMode::none) {
    return {.state = {.parameters = whole, .gradients = whole, .optimizer = slots * whole},
            .sent = 2 * static_cast<double>(ranks - 1) / ranks * static_cast<double>(whole)};
  }
  const bool hybrid = config.shard == ShardMode::hybrid;
  const int group = hybrid ? static_cast<int>(config.shard_group) : ranks;
  const double in_group = static_cast<double>(group - 1) / group * static_cast<double>(whole);
  const std::size_t own = whole / static_cast<std::size_t>(group);
  const bool keeps_gradients = config.shard == ShardMode::optimizer ||
                               (config.accumulate_full_gradients && config.accumulate > 1);
  const bool adds_up = !keeps_gradients && config.accumulate > 1;
  ShardCost cost{.state = {.parameters = own, .gradients = own, .optimizer = slots * own}};
  cost.state.gradients += keeps_gradients ? whole : adds_up ? own : 0;
  cost.sent = keeps_gradients ? in_group : micro_steps * in_group;
  if (config.shard == ShardMode::full || hybrid) {
    // Backward begins with the unit that forward used last.
    const auto kept = static_cast<double>(sizeof(float) * layout.units.front().size());
    cost.sent += micro_steps * (2 - kept / static_cast<double>(whole)) * in_group;
  } else {
    cost.state.parameters = whole;
    cost.sent += in_group;
  }
  if (hybrid) {
    const int replicas = ranks / group;
    cost.sent_across = 2 * static_cast<double>(replicas - 1) / replicas * static_cast<double>(own);
    cost.sent += cost.sent_across;
  }
  return cost;
}

}  // namespace lockstep
