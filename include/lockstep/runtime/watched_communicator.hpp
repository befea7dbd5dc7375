#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/runtime/phase_board.hpp"

namespace lockstep {

/// Another communicator, that tells the board what it waits in. Reductions that are started count
/// as buckets of the step.
class WatchedCommunicator final : public Communicator {
 public:
  /// Both outlive it.
  WatchedCommunicator(Communicator& inner, PhaseBoard& board) : inner_(inner), board_(board) {}

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }
  void barrier() override;
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override;
  void broadcast_buffer(MutableBuffer buffer, int root) override;
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override;
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override;
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override;
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override;
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override;
  bool test(Request& request) override;
  void wait(Request& request) override;
  void synchronize() override;

 private:
  Communicator& inner_;
  PhaseBoard& board_;
};

}  // namespace lockstep
