#pragma once

#include "exchange.hpp"
#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace lockstep {

/// A communicator over a part of the ranks of another.
struct ExchangePart {
  std::unique_ptr<Communicator> communicator;
  std::string reason;  ///< why it lacks the other's transport; on all ranks of the part or on none
};

struct ExchangeCommunicatorOptions {
  /// Blocking collectives of fewer bytes go to the inner communicator.
  std::size_t smallest_blocking = 0;
  /// Called first on the thread that then progresses all exchanges while this one has operations;
  /// empty: they progress only in test() and wait().
  std::function<void()> prepare_thread = {};
  /// Makes one over a part of the inner one's ranks, of several ranks, for a split.
  std::function<ExchangePart(std::shared_ptr<Communicator> part)> over = {};
};

/// Makes a communicator that runs all-gathers, and summing all-reduces and reduce-scatters of fp32,
/// bf16 and fp16, by `exchange`, and everything else by `inner`.
[[nodiscard]] std::unique_ptr<Communicator> make_exchange_communicator(
    std::shared_ptr<Communicator> inner, std::unique_ptr<Exchange> exchange,
    ExchangeCommunicatorOptions options = {});

/// For an inner communicator that outlives the one above it.
[[nodiscard]] inline std::shared_ptr<Communicator> not_owned(Communicator& inner) {
  return {MemoryOwner(), &inner};
}

}  // namespace lockstep
