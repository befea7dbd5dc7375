#pragma once

#include "exchange.hpp"
#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep {

struct ExchangeCommunicatorOptions {
  /// Blocking collectives of fewer bytes go to the inner communicator.
  std::size_t smallest_blocking = 0;
  /// Called first on the thread that then progresses all exchanges while this one has operations;
  /// empty: they progress only in test() and wait().
  std::function<void()> prepare_thread = {};
  /// Makes an exchange communicator over a part of the inner one's ranks; null: not possible.
  std::function<std::unique_ptr<Communicator>(Communicator& part)> over = {};
};

/// Makes a communicator that runs all-gathers, and summing all-reduces and reduce-scatters of fp32,
/// bf16 and fp16, by `exchange`, and everything else by `inner`, which must outlive it. `memory`
/// outlives `exchange`.
[[nodiscard]] std::unique_ptr<Communicator> make_exchange_communicator(
    Communicator& inner, std::unique_ptr<Exchange> exchange, MemoryOwner memory = {},
    ExchangeCommunicatorOptions options = {});

}  // namespace lockstep
