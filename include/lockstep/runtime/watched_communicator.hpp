#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/runtime/phase_board.hpp"

namespace lockstep {

/// Another communicator, that tells the board what it waits in. Reductions that are started count
/// as buckets of the step.
class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  /// Both outlive it.
  WatchedCommunicator(Communicator& inner, PhaseBoard& board)
      : ForwardingCommunicator(inner), board_(board) {}

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override;
  bool test(Request& request) override;
  void wait(Request& request) override;
  void synchronize() override;

 private:
  void begin(const CollectiveCall& call) override { board_.begin_wait(call.kind, call.count); }
  void end() noexcept override { board_.end_wait(); }

  PhaseBoard& board_;
};

}  // namespace lockstep
