#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

/// Kind of communicator call: a collective or a message. For the watchdog, traces and
/// CollectiveComparison.
enum class CollectiveKind : std::uint8_t {
  none,
  barrier,
  all_reduce,
  broadcast,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  started_all_reduce,  ///< nonblocking, as are the next two
  started_reduce_scatter,
  started_all_gather,
  synchronize,  ///< waits for a device and its collectives
  split,
  send,  ///< a message, as is the next one
  receive
};

/// Whether the collective is nonblocking and returns a request.
[[nodiscard]] constexpr bool is_started(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::started_all_reduce ||
         kind == CollectiveKind::started_reduce_scatter ||
         kind == CollectiveKind::started_all_gather;
}

/// Whether it is a call of two ranks only.
[[nodiscard]] constexpr bool is_message(CollectiveKind kind) noexcept {
  return kind == CollectiveKind::send || kind == CollectiveKind::receive;
}

[[nodiscard]] constexpr std::string_view to_string(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::none:
      break;
    case CollectiveKind::barrier:
      return "barrier";
    case CollectiveKind::all_reduce:
      return "all-reduce";
    case CollectiveKind::broadcast:
      return "broadcast";
    case CollectiveKind::all_gather:
      return "all-gather";
    case CollectiveKind::gather:
      return "gather";
    case CollectiveKind::scatter:
      return "scatter";
    case CollectiveKind::reduce_scatter:
      return "reduce-scatter";
    case CollectiveKind::started_all_reduce:
      return "started all-reduce";
    case CollectiveKind::started_reduce_scatter:
      return "started reduce-scatter";
    case CollectiveKind::started_all_gather:
      return "started all-gather";
    case CollectiveKind::synchronize:
      return "synchronization with the device";
    case CollectiveKind::split:
      return "split";
    case CollectiveKind::send:
      return "send";
    case CollectiveKind::receive:
      return "receive";
  }
  return "nothing";
}

}  // namespace lockstep
