#include "lockstep/runtime/watched_communicator.hpp"

namespace lockstep {
namespace {

/// The board shows a wait as long as this lives, whether the collective returns or throws.
class Wait final {
 public:
  Wait(PhaseBoard& board, CollectiveKind kind, std::size_t count) : board_(board) {
    board_.begin_wait(kind, count);
  }
  explicit Wait(PhaseBoard& board) : board_(board) { board_.begin_bucket_wait(); }
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  ~Wait() { board_.end_wait(); }

 private:
  PhaseBoard& board_;
};

}  // namespace

void WatchedCommunicator::barrier() {
  const Wait wait(board_, CollectiveKind::barrier, 0);
  inner_.barrier();
}

void WatchedCommunicator::all_reduce_buffer(MutableBuffer buffer, ReduceOp op) {
  const Wait wait(board_, CollectiveKind::all_reduce, buffer.count);
  inner_.all_reduce_buffer(buffer, op);
}

void WatchedCommunicator::broadcast_buffer(MutableBuffer buffer, int root) {
  const Wait wait(board_, CollectiveKind::broadcast, buffer.count);
  inner_.broadcast_buffer(buffer, root);
}

void WatchedCommunicator::all_gather_buffer(ConstBuffer mine, MutableBuffer all) {
  const Wait wait(board_, CollectiveKind::all_gather, mine.count);
  inner_.all_gather_buffer(mine, all);
}

void WatchedCommunicator::gather_buffer(ConstBuffer mine, MutableBuffer all, int root) {
  const Wait wait(board_, CollectiveKind::gather, mine.count);
  inner_.gather_buffer(mine, all, root);
}

void WatchedCommunicator::scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) {
  const Wait wait(board_, CollectiveKind::scatter, mine.count);
  inner_.scatter_buffer(all, mine, root);
}

void WatchedCommunicator::reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) {
  const Wait wait(board_, CollectiveKind::reduce_scatter, mine.count);
  inner_.reduce_scatter_buffer(all, mine, op);
}

Request WatchedCommunicator::start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) {
  board_.start_bucket();
  return inner_.start_all_reduce_buffer(buffer, op);
}

bool WatchedCommunicator::test(Request& request) {
  board_.move();
  return inner_.test(request);
}

void WatchedCommunicator::wait(Request& request) {
  const Wait wait(board_);
  inner_.wait(request);
}

void WatchedCommunicator::synchronize() {
  const Wait wait(board_, CollectiveKind::synchronize, 0);
  inner_.synchronize();
}

}  // namespace lockstep
