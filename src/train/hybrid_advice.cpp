#include "hybrid_advice.hpp"

#include "lockstep/parallel/hybrid_prediction.hpp"

#include <fmt/format.h>

namespace lockstep {

std::optional<std::string> hybrid_advice(const Config& config, const Graph& graph, int ranks,
                                         int nodes, const ShardingWatch::Means& means) {
  if (config.shard != ShardMode::grad && config.shard != ShardMode::full) return std::nullopt;
  if (ranks < fewest_ranks_for_hybrid || nodes < 2 || ranks % nodes != 0) return std::nullopt;
  const auto hybrid = predict_hybrid(config, graph,
                                     {.nodes = nodes,
                                      .ranks_per_node = ranks / nodes,
                                      .seconds = means.step,
                                      .images_per_second = means.images_per_second});
  if (!hybrid || !is_worth_hybrid(hybrid->seconds, means.step)) return std::nullopt;
  return fmt::format(
      "--shard {} over all {} ranks takes {:.3f} s a step, of which rank 0 waits {:.3f} s for "
      "messages; --shard hybrid --shard-group {} may take less, if a rank has the memory (see "
      "lockstep inspect --ranks). To predict both: lockstep scale --nodes {} --gpus-per-node {} "
      "--images-per-second {:.2f}, with the rates of the network and this run's options",
      to_string(config.shard), ranks, means.step, means.waiting, hybrid->group, nodes,
      ranks / nodes, means.images_per_second);
}

}  // namespace lockstep
