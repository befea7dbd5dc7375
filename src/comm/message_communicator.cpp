#include "lockstep/comm/message_communicator.hpp"

#include "exchange/exchange_communicator.hpp"
#include "levels/node_layout.hpp"
#include "levels/two_level_exchange.hpp"
#include "lockstep/comm/first_text.hpp"
#include "messages/message_exchange.hpp"
#include "mpi_group_of.hpp"
#include "shared_memory/piece_exchange.hpp"
#include "shared_memory/window_bytes.hpp"

#include <fmt/format.h>

#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Options = MessageCommunicatorOptions;

/// Smaller blocking collectives go to MPI's own algorithms, which have fewer rounds.
constexpr std::size_t smallest_blocking = 16384;

BlockSchedule schedule_of(const Options& options, int ranks) {
  return options.schedule.value_or(choose_schedule(ranks));
}

std::string_view name_of(BlockSchedule schedule) {
  return schedule == BlockSchedule::ring ? "ring" : "halving";
}

/// Empty if the layout allows two levels.
std::string why_one_level(const NodeLayout& layout) {
  if (layout.ranks_per_node == 0) return "nodes have different numbers of ranks";
  return layout.is_consecutive ? "" : "ranks of a node are not consecutive";
}

std::unique_ptr<MpiGroup> group_of(Communicator& inner, int color) {
  return mpi_group_of(inner.split(color, inner.rank()));
}

std::unique_ptr<Exchange> make_messages(std::unique_ptr<MpiGroup> group, const Options& options) {
  const MessageExchange::Options messages{.schedule = schedule_of(options, group->size()),
                                          .piece_bytes = options.piece_bytes,
                                          .receive_buffer_bytes = options.receive_buffer_bytes};
  return std::make_unique<MessageExchange>(std::move(group), messages);
}

struct TwoLevels {
  std::unique_ptr<Exchange> exchange;
  std::string no_memory;  ///< why `exchange` is null; the same on all ranks
};

TwoLevels make_two_levels(Communicator& inner, const NodeLayout& layout, const Options& options) {
  const auto node = inner.split(layout.first_on_node, inner.rank());
  const std::size_t window =
      options.window_bytes != 0 ? options.window_bytes : window_bytes(2 * layout.ranks_per_node);
  auto [scatter, no_scatter] = PieceExchange::make(*node, window);
  auto [gather, no_gather] = PieceExchange::make(*node, window);
  std::string no_memory = first_text(inner, no_scatter.empty() ? no_gather : no_scatter);
  if (!no_memory.empty()) return {.exchange = nullptr, .no_memory = std::move(no_memory)};
  return {.exchange = std::make_unique<TwoLevelExchange>(TwoLevelExchange::Levels{
              .scatter = std::move(scatter),
              .gather = std::move(gather),
              .between = make_messages(group_of(inner, layout.first_of_peers), options),
              .local_rank = layout.local_rank,
              .ranks_per_node = layout.ranks_per_node,
              .nodes = layout.nodes,
              .part_bytes = options.part_bytes}),
          .no_memory = ""};
}

struct Made {
  MessageCommunicatorResult result;
  std::string no_memory;  ///< why it has one level although its layout allows two
};

Made make(std::shared_ptr<Communicator> inner, const Options& options) {
  auto group = group_of(*inner, 0);
  std::vector<int> node_of(static_cast<std::size_t>(inner->size()));
  const int node = options.node.value_or(first_rank_on_node(*group));
  inner->all_gather(std::span<const int>(&node, 1), std::span(node_of));
  const NodeLayout layout = node_layout(node_of, inner->rank());
  MessageCommunicatorResult result;
  TwoLevels levels;
  if (options.two_levels && layout.nodes > 1 && layout.nodes < inner->size()) {
    result.one_level_reason = why_one_level(layout);
    if (result.one_level_reason.empty()) levels = make_two_levels(*inner, layout, options);
  }
  const bool two_levels = levels.exchange != nullptr;
  if (two_levels) {
    result.algorithm = fmt::format("shared memory, {} between {} nodes",
                                   name_of(schedule_of(options, layout.nodes)), layout.nodes);
  } else {
    result.algorithm = name_of(schedule_of(options, inner->size()));
    levels.exchange = make_messages(std::move(group), options);
  }
  if (!levels.no_memory.empty()) result.one_level_reason = levels.no_memory;
  // A part may have one level where this one has, whatever the reason.
  const auto over = [options, two_levels](std::shared_ptr<Communicator> part) -> ExchangePart {
    auto [made, no_memory] = make(std::move(part), options);
    return {std::move(made.communicator), two_levels ? std::move(no_memory) : ""};
  };
  result.communicator = make_exchange_communicator(std::move(inner), std::move(levels.exchange),
                                                   {.smallest_blocking = smallest_blocking,
                                                    .prepare_thread = options.prepare_thread,
                                                    .over = over});
  return {.result = std::move(result), .no_memory = std::move(levels.no_memory)};
}

}  // namespace

MessageCommunicatorResult make_message_communicator(Communicator& inner, const Options& options) {
  return make(not_owned(inner), options).result;
}

MessageCommunicatorResult make_message_communicator(const std::shared_ptr<Communicator>& inner,
                                                    const Options& options) {
  return make(inner, options).result;
}

}  // namespace lockstep
