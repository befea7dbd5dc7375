#include "lockstep/comm/message_communicator.hpp"

#include "../exchange/exchange_communicator.hpp"
#include "../messages/message_exchange.hpp"
#include "../mpi_group_of.hpp"
#include "../shared_memory/piece_exchange.hpp"
#include "../shared_memory/shared_segment.hpp"
#include "../shared_memory/window_bytes.hpp"
#include "lockstep/comm/first_text.hpp"
#include "node_layout.hpp"
#include "two_level_exchange.hpp"

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// Smaller blocking collectives go to MPI's own algorithms, which have fewer rounds.
constexpr std::size_t smallest_blocking = 16384;

std::string_view name_of(BlockSchedule schedule) {
  return schedule == BlockSchedule::ring ? "ring" : "halving";
}

/// Two exchanges through shared memory between the ranks of a node, and the memory.
struct NodeLevel {
  std::unique_ptr<Communicator> ranks;
  std::unique_ptr<SharedSegment> scatter_memory;
  std::unique_ptr<SharedSegment> gather_memory;
  std::string reason;  ///< why there is no memory

  NodeLevel(std::unique_ptr<Communicator> ranks_of_node, std::size_t window)
      : ranks(std::move(ranks_of_node)) {
    const SharedSegment::Sizes sizes{.common = PieceExchange::counter_bytes(ranks->size()),
                                     .a_rank = window};
    for (auto* memory : {&scatter_memory, &gather_memory}) {
      SharedSegment::Result made = SharedSegment::make(*ranks, sizes);
      *memory = std::move(made.segment);
      if (reason.empty()) reason = std::move(made.reason);
    }
  }
  [[nodiscard]] std::unique_ptr<Exchange> exchange(const SharedSegment& memory,
                                                   std::size_t window) const {
    return std::make_unique<PieceExchange>(
        PieceExchange::Memory{
            .counters = memory.common(), .windows = memory.parts(), .window = window},
        ranks->rank(), ranks->size());
  }
};

/// Keeps both.
MemoryOwner kept(std::shared_ptr<Communicator> inner, std::shared_ptr<NodeLevel> node) {
  return std::make_shared<std::pair<std::shared_ptr<Communicator>, std::shared_ptr<NodeLevel>>>(
      std::move(inner), std::move(node));
}

/// Empty if the layout allows two levels.
std::string why_one_level(const NodeLayout& layout) {
  if (layout.ranks_per_node == 0) return "nodes have different numbers of ranks";
  return layout.is_consecutive ? "" : "ranks of a node are not consecutive";
}

}  // namespace

MessageCommunicatorResult make_message_communicator(Communicator& inner,
                                                    const MessageCommunicatorOptions& options) {
  return make_message_communicator(std::shared_ptr<Communicator>(MemoryOwner(), &inner), options);
}

MessageCommunicatorResult make_message_communicator(const std::shared_ptr<Communicator>& owned,
                                                    const MessageCommunicatorOptions& options) {
  Communicator& inner = *owned;
  const auto of_color = [&inner](int color) {
    return mpi_group_of(inner.split(color, inner.rank()));
  };
  auto group = of_color(0);
  MessageExchange::Options messages{
      .schedule = options.schedule.value_or(choose_schedule(inner.size())),
      .piece_bytes = options.piece_bytes,
      .receive_buffer_bytes = options.receive_buffer_bytes};
  const ExchangeCommunicatorOptions limits{
      .smallest_blocking = smallest_blocking,
      .prepare_thread = options.prepare_thread,
      .over = [options](Communicator& part) {
        return make_message_communicator(part, options).communicator;
      }};
  MessageCommunicatorResult result;
  std::vector<int> node_of(static_cast<std::size_t>(inner.size()));
  const int node = options.node.value_or(first_rank_on_node(*group));
  inner.all_gather(std::span<const int>(&node, 1), std::span(node_of));
  const NodeLayout layout = node_layout(node_of, inner.rank());
  if (options.two_levels && layout.nodes > 1 && layout.nodes < inner.size()) {
    result.one_level_reason = why_one_level(layout);
    if (result.one_level_reason.empty()) {
      const std::size_t window = options.window_bytes != 0
                                     ? options.window_bytes
                                     : window_bytes(2 * layout.ranks_per_node);
      auto local =
          std::make_shared<NodeLevel>(inner.split(layout.first_on_node, inner.rank()), window);
      result.one_level_reason = first_text(inner, local->reason);
      if (result.one_level_reason.empty()) {
        auto peers = of_color(layout.first_of_peers);
        messages.schedule = options.schedule.value_or(choose_schedule(layout.nodes));
        auto exchange = std::make_unique<TwoLevelExchange>(TwoLevelExchange::Levels{
            .scatter = local->exchange(*local->scatter_memory, window),
            .gather = local->exchange(*local->gather_memory, window),
            .between = std::make_unique<MessageExchange>(std::move(peers), messages),
            .local_rank = layout.local_rank,
            .ranks_per_node = layout.ranks_per_node,
            .nodes = layout.nodes,
            .part_bytes = options.part_bytes});
        result.algorithm = fmt::format("shared memory, {} between {} nodes",
                                       name_of(messages.schedule), layout.nodes);
        result.communicator = make_exchange_communicator(inner, std::move(exchange),
                                                         kept(owned, std::move(local)), limits);
        return result;
      }
    }
  }
  result.algorithm = name_of(messages.schedule);
  result.communicator = make_exchange_communicator(
      inner, std::make_unique<MessageExchange>(std::move(group), messages), owned, limits);
  return result;
}

}  // namespace lockstep
