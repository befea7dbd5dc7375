#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/runtime/phase_board.hpp"

#include <cstdint>
#include <vector>

namespace lockstep {

/// Wraps a communicator and reports to the board what it waits for. Nonblocking collectives count
/// as buckets of the step, messages as neither buckets nor collectives.
class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  /// Both references must outlive it.
  WatchedCommunicator(Communicator& inner, PhaseBoard& board)
      : ForwardingCommunicator(inner), board_(board) {}

  bool test(Request& request) override;
  void wait(Request& request) override;
  void synchronize() override;
  void synchronize_until(FunctionRef<bool()> reached) override;

 private:
  void begin(const CollectiveCall& call) override { board_.begin_wait(call.kind, call.count); }
  void end() noexcept override { board_.end_wait(); }
  void before_start(const CollectiveCall& call) override;
  void after_start(CollectiveKind kind, const Request& request) override;

  struct Started {
    CollectiveKind kind = CollectiveKind::none;
    std::int32_t bucket = 0;  ///< 0: a message
  };
  PhaseBoard& board_;
  std::int32_t starting_bucket_ = 0;
  /// By request slot; preallocated, so that a step allocates nothing.
  std::vector<Started> requests_ = std::vector<Started>(64);
};

}  // namespace lockstep
