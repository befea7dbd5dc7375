#pragma once

#include "lockstep/comm/block_schedule.hpp"
#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lockstep {

struct MessageCommunicatorOptions {
  std::optional<BlockSchedule> schedule = {};  ///< nullopt: choose_schedule()
  /// Ranks of a node sum in memory that they share, before and after messages between nodes.
  bool two_levels = true;
  /// Identifies this rank's node; nullopt: by MPI. Tests divide one host into several nodes.
  std::optional<int> node = {};
  /// Largest message. Open MPI sends up to 64 KiB over TCP at once, including its header; before
  /// it sends more it exchanges messages with the receiver, which wait behind bulk data.
  std::size_t piece_bytes = std::size_t{60} << 10;
  std::size_t receive_buffer_bytes = std::size_t{64}
                                     << 20;        ///< memory for messages that were not added yet
  std::size_t part_bytes = std::size_t{16} << 20;  ///< largest part of a two-level all-reduce
  /// Called first on the thread that progresses messages while ranks compute; needs
  /// MPI_THREAD_SERIALIZED. Empty: messages progress only in test() and wait().
  std::function<void()> prepare_thread = {};
  std::size_t window_bytes = 0;  ///< of each rank, in shared memory; 0: a size that fits the caches
};

struct MessageCommunicatorResult {
  std::unique_ptr<Communicator> communicator;
  /// "halving between 8 nodes" or "shared memory, halving between 8 nodes". Bits of sums depend on
  /// it.
  std::string algorithm;
  /// Why ranks of a node send messages to each other though two levels were asked for; else empty.
  std::string one_level_reason;
};

/// Makes a communicator that runs all-gathers, and summing all-reduces and reduce-scatters of fp32,
/// bf16 and fp16, by messages on the schedule. Everything else goes to `inner`, which must outlive
/// it, as do blocking collectives of a few kB. A sum has the same bits in every run with the same
/// placement of ranks, and on all ranks. The thread that made the communicator must use and destroy
/// it. Collective over the ranks of `inner`, which is MPI's, decorated or not. A split of one with
/// two levels has two where the layout of its ranks on nodes allows them; if their memory cannot be
/// allocated, it throws Error(internal) on all ranks.
[[nodiscard]] MessageCommunicatorResult make_message_communicator(
    Communicator& inner, const MessageCommunicatorOptions& options = {});
/// The same; keeps `inner`.
[[nodiscard]] MessageCommunicatorResult make_message_communicator(
    const std::shared_ptr<Communicator>& inner, const MessageCommunicatorOptions& options = {});

}  // namespace lockstep
