#include "lockstep/runtime/watched_communicator.hpp"

namespace lockstep {
namespace {

/// Ends the board's wait, whether the call returns or throws.
class EndOfWait final {
 public:
  explicit EndOfWait(PhaseBoard& board) : board_(board) {}
  EndOfWait(const EndOfWait&) = delete;
  EndOfWait& operator=(const EndOfWait&) = delete;
  ~EndOfWait() { board_.end_wait(); }

 private:
  PhaseBoard& board_;
};

}  // namespace

Request WatchedCommunicator::start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) {
  board_.start_bucket();
  return inner().start_all_reduce_buffer(buffer, op);
}

bool WatchedCommunicator::test(Request& request) {
  board_.move();
  return inner().test(request);
}

void WatchedCommunicator::wait(Request& request) {
  board_.begin_bucket_wait();
  const EndOfWait wait(board_);
  inner().wait(request);
}

void WatchedCommunicator::synchronize() {
  board_.begin_wait(CollectiveKind::synchronize, 0);
  const EndOfWait wait(board_);
  inner().synchronize();
}

}  // namespace lockstep
