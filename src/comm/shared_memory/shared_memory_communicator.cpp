#include "lockstep/comm/shared_memory_communicator.hpp"

#include "../exchange/exchange_communicator.hpp"
#include "piece_exchange.hpp"
#include "shared_segment.hpp"
#include "window_bytes.hpp"

#include <utility>

namespace lockstep {

SharedMemoryResult make_shared_memory_communicator(Communicator& inner,
                                                   SharedMemoryOptions options) {
  if (inner.size() == 1) return {.communicator = nullptr, .reason = "there is one rank alone"};
  const std::size_t window = options.bytes != 0 ? options.bytes : window_bytes(inner.size());
  auto [segment, reason] = SharedSegment::make(
      inner, {.common = PieceExchange::counter_bytes(inner.size()), .a_rank = window});
  if (!segment) return {.communicator = nullptr, .reason = std::move(reason)};
  auto exchange = std::make_unique<PieceExchange>(
      PieceExchange::Memory{
          .counters = segment->common(), .windows = segment->parts(), .window = window},
      inner.rank(), inner.size());
  const auto over = [options](Communicator& part) {
    return make_shared_memory_communicator(part, options).communicator;
  };
  return {.communicator = make_exchange_communicator(inner, std::move(exchange), std::move(segment),
                                                     {.over = over}),
          .reason = ""};
}

}  // namespace lockstep
