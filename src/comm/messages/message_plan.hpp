#pragma once

#include "lockstep/comm/block_schedule.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// A collective whose messages are planned; offsets and sizes in values.
struct MessageShape {
  BlockSchedule schedule = BlockSchedule::halving;
  int rank = 0;
  int ranks = 1;
  std::size_t count = 0;  ///< values in a block
  std::size_t total = 0;  ///< values in all blocks; the last blocks may be shorter
  std::size_t piece = 0;  ///< largest message
  bool reduces = false;
  bool gathers = false;

  bool operator==(const MessageShape&) const = default;
};

/// One message to or from `peer`.
struct Message {
  int peer = 0;
  std::size_t begin = 0;  ///< offset from the first block
  std::size_t count = 0;
  bool reduces = false;  ///< received values are added, otherwise stored
  /// A sum of several ranks is sent, or added to; otherwise this rank's own values.
  bool is_partial_sum = false;
  /// Number of received messages, in the order of MessagePlan::receives, whose values must be added
  /// or stored before this message may be sent. Zero for a message to receive.
  std::size_t after_receives = 0;
  /// Number of sent messages that must have left before this one may overwrite their values.
  std::size_t after_sends = 0;
};

/// All messages of one rank. The n-th message that a rank sends to another is the n-th that this
/// one receives from it, and equally long.
struct MessagePlan {
  std::vector<Message> sends;
  std::vector<Message> receives;
};

/// Plans an all-reduce in place (both flags), a reduce-scatter from one buffer to another, or an
/// all-gather in place. Messages are ordered so that what the next round needs comes first. Pure.
[[nodiscard]] MessagePlan plan_messages(const MessageShape& shape);

}  // namespace lockstep
