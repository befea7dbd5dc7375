#include "message_plan.hpp"

#include <algorithm>
#include <span>

namespace lockstep {
namespace {

/// Adds the messages of one round after another.
class Planner final {
 public:
  explicit Planner(const MessageShape& shape)
      : shape_(shape), is_partial_sum_(static_cast<std::size_t>(shape.ranks)) {}

  void reduce_scatter() {
    for (const BlockRound& round :
         reduce_scatter_rounds(shape_.schedule, shape_.rank, shape_.ranks)) {
      const std::size_t begun = plan_.receives.size();
      for (const Message& message : pieces(round.sends, round.to, shape_.rank, true)) {
        send(message, begun);
      }
      for (const Message& message : pieces(round.receives, round.from, round.from, true)) {
        plan_.receives.push_back(message);
        plan_.receives.back().is_partial_sum = is_partial_sum_[block_of(message)];
      }
      for (int i = 0; i < round.receives.count; ++i)
        is_partial_sum_[cyclic(round.receives, i)] = true;
    }
  }

  void all_gather() {
    for (const BlockRound& round : all_gather_rounds(shape_.schedule, shape_.rank, shape_.ranks)) {
      const std::size_t begun = plan_.receives.size();
      for (const Message& message : pieces(round.sends, round.to, shape_.rank, false)) {
        send(message, begun);
      }
      for (Message message : pieces(round.receives, round.from, round.from, false)) {
        message.after_sends = last_overlap(plan_.sends, plan_.sends.size(), message);
        plan_.receives.push_back(message);
      }
    }
  }

  [[nodiscard]] MessagePlan take() { return std::move(plan_); }

 private:
  [[nodiscard]] std::size_t cyclic(const BlockRange& range, int i) const {
    return static_cast<std::size_t>((range.first + i) % shape_.ranks);
  }
  [[nodiscard]] std::size_t block_of(const Message& message) const {
    return message.begin / shape_.count;
  }

  /// Whether `rank` holds a partial sum of the block now. All ranks do the same relative to their
  /// own block.
  [[nodiscard]] bool holds_partial_sum(int rank, int block) const {
    const int relative = block - rank + shape_.rank + shape_.ranks;
    return is_partial_sum_[static_cast<std::size_t>(relative % shape_.ranks)];
  }
  /// Whether one message may cover both blocks: they are adjacent in memory, for sender and
  /// receiver.
  [[nodiscard]] bool are_adjacent(int block, int next, int sender, int receiver) const {
    if (next == 0) return false;
    if (shape_.gathers) return true;  // in place
    const auto memory_of = [&](int rank, int at) {
      return at == rank ? 2 : holds_partial_sum(rank, at) ? 1 : 0;
    };
    return memory_of(sender, block) == memory_of(sender, next) &&
           memory_of(receiver, block) == memory_of(receiver, next);
  }

  /// The messages for a range of blocks, in memory order or backwards.
  [[nodiscard]] std::vector<Message> pieces(const BlockRange& range, int peer, int sender,
                                            bool backwards) const {
    const int receiver = sender == shape_.rank ? peer : shape_.rank;
    std::vector<Message> messages;
    for (int i = 0; i < range.count;) {
      const int first = static_cast<int>(cyclic(range, i));
      int blocks = 1;
      while (i + blocks < range.count &&
             are_adjacent(first + blocks - 1, static_cast<int>(cyclic(range, i + blocks)), sender,
                          receiver)) {
        ++blocks;
      }
      i += blocks;
      const std::size_t begin =
          std::min(static_cast<std::size_t>(first) * shape_.count, shape_.total);
      const std::size_t end =
          std::min(static_cast<std::size_t>(first + blocks) * shape_.count, shape_.total);
      for (std::size_t at = begin; at < end; at += shape_.piece) {
        messages.push_back({.peer = peer,
                            .begin = at,
                            .count = std::min(shape_.piece, end - at),
                            .reduces = backwards});
      }
    }
    if (backwards) std::ranges::reverse(messages);
    return messages;
  }

  /// `begun`: number of messages received before this round.
  void send(Message message, std::size_t begun) {
    message.is_partial_sum = is_partial_sum_[block_of(message)];
    message.after_receives = last_overlap(plan_.receives, begun, message);
    plan_.sends.push_back(message);
  }

  /// One past the last of the first `limit` messages that covers some value of `message`; 0: none.
  [[nodiscard]] static std::size_t last_overlap(std::span<const Message> messages,
                                                std::size_t limit, const Message& message) {
    while (limit > 0) {
      const Message& other = messages[limit - 1];
      if (other.begin < message.begin + message.count && message.begin < other.begin + other.count)
        break;
      --limit;
    }
    return limit;
  }

  MessageShape shape_;
  MessagePlan plan_;
  std::vector<bool> is_partial_sum_;  ///< by block
};

}  // namespace

MessagePlan plan_messages(const MessageShape& shape) {
  Planner planner(shape);
  if (shape.reduces) planner.reduce_scatter();
  if (shape.gathers) planner.all_gather();
  return planner.take();
}

}  // namespace lockstep
