#include "lockstep/comm/shared_memory_communicator.hpp"

#include "../exchange/exchange_communicator.hpp"
#include "piece_exchange.hpp"
#include "window_bytes.hpp"

#include <utility>

namespace lockstep {
namespace {

ExchangePart make(std::shared_ptr<Communicator> inner, const SharedMemoryOptions& options) {
  if (inner->size() == 1) return {.communicator = nullptr, .reason = "there is one rank alone"};
  const std::size_t window = options.bytes != 0 ? options.bytes : window_bytes(inner->size());
  auto [exchange, reason] = PieceExchange::make(*inner, window);
  if (!exchange) return {.communicator = nullptr, .reason = std::move(reason)};
  const auto over = [options](std::shared_ptr<Communicator> part) {
    return make(std::move(part), options);
  };
  return {.communicator =
              make_exchange_communicator(std::move(inner), std::move(exchange), {.over = over}),
          .reason = ""};
}

}  // namespace

SharedMemoryResult make_shared_memory_communicator(Communicator& inner,
                                                   SharedMemoryOptions options) {
  auto [communicator, reason] = make(not_owned(inner), options);
  return {.communicator = std::move(communicator), .reason = std::move(reason)};
}

}  // namespace lockstep
