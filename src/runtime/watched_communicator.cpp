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

void WatchedCommunicator::before_start(const CollectiveCall& call) {
  starting_bucket_ = 0;
  if (is_message(call.kind)) {
    board_.begin_wait(call.kind, call.count);
  } else {
    starting_bucket_ = board_.start_bucket(call.kind);
  }
}

void WatchedCommunicator::after_start(CollectiveKind kind, const Request& request) {
  board_.end_wait();
  if (request.done()) return;
  const auto slot = static_cast<std::size_t>(request.slot);
  if (slot >= requests_.size()) requests_.resize(slot + 1);
  requests_[slot] = {.kind = kind, .bucket = starting_bucket_};
}

bool WatchedCommunicator::test(Request& request) {
  board_.move();
  return inner().test(request);
}

void WatchedCommunicator::wait(Request& request) {
  if (request.done()) return inner().wait(request);
  const Started& started = requests_.at(static_cast<std::size_t>(request.slot));
  board_.begin_request_wait(started.kind, started.bucket);
  const EndOfWait wait(board_);
  inner().wait(request);
}

void WatchedCommunicator::synchronize() {
  board_.begin_wait(CollectiveKind::synchronize, 0);
  const EndOfWait wait(board_);
  inner().synchronize();
}

void WatchedCommunicator::synchronize_until(FunctionRef<bool()> reached) {
  board_.begin_wait(CollectiveKind::synchronize, 0);
  const EndOfWait wait(board_);
  inner().synchronize_until(reached);
}

}  // namespace lockstep
