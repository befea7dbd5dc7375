#include "comm/stand_in_communicator.hpp"

#include "lockstep/comm/mpi_communicator.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::test {
namespace {

constexpr int closing_tag = 1;  ///< the messages of collectives have 0

}  // namespace

StandInCommunicator::StandInCommunicator(Shared& shared, int number, int color)
    : shared_(shared), number_(number), mpi_(make_mpi_communicator()->split(color, 0)) {
  MPI_Comm_rank(MPI_COMM_WORLD, &job_rank_);
  MPI_Comm_split(MPI_COMM_WORLD, color, job_rank_, &peers_);
  make_collectives();
}

StandInCommunicator::StandInCommunicator(StandInCommunicator& parent, int number, int color,
                                         int key)
    : shared_(parent.shared_),
      number_(number),
      mpi_(parent.mpi_->split(color, key)),
      job_rank_(parent.job_rank_) {
  MPI_Comm_split(parent.peers_, color, key, &peers_);
  make_collectives();
}

void StandInCommunicator::make_collectives() {
  // So that a step allocates nothing, however many are in flight.
  for (int i = 0; i < 8; ++i) {
    collectives_.emplace_back(*mpi_, peers_, shared_.device, shared_.counts.collectives);
  }
}

StandInCommunicator::~StandInCommunicator() {
  if (!met_) post_start();
  mpi_->wait(start_);
  std::vector<StandInCollective*> left;
  for (StandInCollective& collective : collectives_) {
    if (collective.busy) left.push_back(&collective);
  }
  std::ranges::sort(left, {}, &StandInCollective::number);
  for (StandInCollective* collective : left) {
    while (!collective->move()) {
    }
  }
  const int has_closed = closings_.empty() ? 0 : 1;
  int all_closed = 0;
  MPI_Allreduce(&has_closed, &all_closed, 1, MPI_INT, MPI_SUM, peers_);
  while (closed_peers_ < all_closed - has_closed) static_cast<void>(has_lost_peer());
  MPI_Waitall(static_cast<int>(closings_.size()), closings_.data(), MPI_STATUSES_IGNORE);
  MPI_Comm_free(&peers_);
}

void StandInCommunicator::close_connections() noexcept {
  if (!shared_.faults.abort_is_seen || !closings_.empty()) return;
  for (int peer = 0; peer < mpi_->size(); ++peer) {
    if (peer == mpi_->rank()) continue;
    MPI_Isend(&job_rank_, 1, MPI_INT, peer, closing_tag, peers_, &closings_.emplace_back());
  }
}
bool StandInCommunicator::has_lost_peer() {
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, closing_tag, peers_, &found, MPI_STATUS_IGNORE);
  if (found != 0) {
    MPI_Recv(&shared_.lost, 1, MPI_INT, MPI_ANY_SOURCE, closing_tag, peers_, MPI_STATUS_IGNORE);
    ++closed_peers_;
  }
  return closed_peers_ > 0;
}

void StandInCommunicator::post_start() {
  met_ = true;
  start_ = mpi_->start_all_reduce(std::span<std::int64_t>(meeting_), ReduceOp::min);
}

NcclResult StandInCommunicator::init(int ranks, std::string_view ids, int rank) {
  if (state_ != State::absent) return misused(NcclResult::invalid_usage);
  if (ranks != mpi_->size() || rank != mpi_->rank()) return NcclResult::invalid_argument;
  if (is_told(shared_.faults.init_fails)) return NcclResult::system_error;
  state_ = State::starting;
  polls_left_ = shared_.variation.polls(shared_.faults.init_polls);
  const auto hash = static_cast<std::int64_t>(std::hash<std::string_view>{}(ids) >> 2U);
  meeting_[0] = hash;
  meeting_[1] = -hash;
  if (!is_told(shared_.faults.init_hangs)) post_start();
  return NcclResult::in_progress;
}

NcclResult StandInCommunicator::split(StandInCommunicator& child, int color, int key,
                                      NcclComm* made) {
  if (const auto refused = require_ready(); refused != NcclResult::success) return refused;
  *made = nullptr;
  const std::string colors = std::to_string(color);
  child.parent_ = this;
  const NcclResult result = child.init(child.ranks(), colors, key);
  if (result != NcclResult::in_progress) return result;
  child_ = &child;
  made_ = made;
  return begin(State::splitting, 1);
}

NcclResult StandInCommunicator::get_async_error(NcclResult* state) {
  if (state_ == State::absent) return misused(NcclResult::invalid_argument);
  // A split still needs its parent's connections.
  const bool is_split = state_ == State::starting && parent_ != nullptr;
  if (is_told(shared_.faults.error_in == state_) || has_lost_peer() ||
      (is_split && parent_->has_lost_peer())) {
    *state = NcclResult::remote_error;
    return NcclResult::success;
  }
  if (state_ == State::splitting && shared_.variation.hands_over_early()) {
    state_ = State::ready;
    *made_ = child_;
    *state = NcclResult::success;
    return NcclResult::success;
  }
  if (state_ == State::splitting) {
    const NcclResult result = child_->get_async_error(state);
    if (result != NcclResult::success || *state == NcclResult::in_progress) return result;
    state_ = State::ready;
    if (*state == NcclResult::success) *made_ = child_;
    return result;
  }
  *state = NcclResult::in_progress;
  if (state_ != State::starting &&
      is_told(shared_.faults.error_after >= 0 &&
              shared_.counts.collectives >= shared_.faults.error_after)) {
    *state = NcclResult::remote_error;
    return NcclResult::success;
  }
  if (polls_left_ > 0) --polls_left_;
  if (state_ == State::starting) {
    if (!met_ || !mpi_->test(start_) || polls_left_ > 0) return NcclResult::success;
    // The ids of all ranks are equal if the smallest equals the largest.
    if (meeting_[0] != -meeting_[1]) *state = NcclResult::invalid_argument;
  } else if (polls_left_ > 0 ||
             (state_ == State::finalizing && is_told(shared_.faults.finalize_hangs))) {
    return NcclResult::success;
  }
  settle();
  if (*state == NcclResult::in_progress) *state = NcclResult::success;
  return NcclResult::success;
}

NcclResult StandInCommunicator::begin(State state, int polls) {
  // An error shows in a query.
  if (is_told(shared_.faults.error_in == state)) polls = std::max(polls, 1);
  state_ = state;
  polls_left_ = polls;
  if (polls == 0) settle();
  const bool early = polls == 0 || shared_.variation.succeeds_early(shared_.faults.success_early);
  return early ? NcclResult::success : NcclResult::in_progress;
}
void StandInCommunicator::settle() {
  if (settling_ != nullptr) {
    if (shared_.variation.varies()) shared_.queues.delays.task = shared_.variation.delay();
    shared_.queues.queue(settling_stream_, *settling_);
  }
  settling_ = nullptr;
  if (result_ != nullptr) *result_ = value_;
  result_ = nullptr;
  if (state_ != State::finalizing) state_ = State::ready;
}

NcclResult StandInCommunicator::require_ready() {
  return state_ == State::ready ? NcclResult::success : misused(NcclResult::invalid_usage);
}
NcclResult StandInCommunicator::register_memory(int usual_polls, void** result, void* value) {
  result_ = result;
  value_ = value;
  return begin(State::registering, shared_.variation.polls(usual_polls));
}

NcclResult StandInCommunicator::finalize() {
  if (const auto refused = require_ready(); refused != NcclResult::success) return refused;
  ++shared_.counts.finalized;
  return begin(State::finalizing, 1 + shared_.variation.polls(1));
}
NcclResult StandInCommunicator::destroy() noexcept {
  if (state_ != State::finalizing || polls_left_ > 0) return misused(NcclResult::invalid_usage);
  ++shared_.counts.destroyed;
  state_ = State::absent;
  return NcclResult::success;
}
NcclResult StandInCommunicator::abort() noexcept {
  if (state_ == State::absent) return misused(NcclResult::invalid_usage);
  ++shared_.counts.aborted;
  // Nobody has the child's handle yet.
  if (state_ == State::splitting) child_->state_ = State::absent;
  state_ = State::absent;
  settling_ = nullptr;
  result_ = nullptr;
  for (StandInCollective& collective : collectives_) collective.abort();
  close_connections();
  return NcclResult::success;
}
bool StandInCommunicator::has_queued() const {
  return std::ranges::any_of(collectives_, [&](const StandInCollective& collective) {
    return collective.is_pending() && &collective != settling_ && &collective != group_;
  });
}

NcclResult StandInCommunicator::make(const StandInCollective::Work& work, CudaStream stream) {
  if (const auto refused = require_ready(); refused != NcclResult::success) return refused;
  if (!is_device_address(work.from) || !is_device_address(work.to))
    return NcclResult::invalid_argument;
  StandInCollective& made = free_collective();
  made.work = work;
  made.work.from = host_address(work.from);
  made.work.to = host_address(work.to);
  return submit(made, stream);
}

StandInCollective& StandInCommunicator::free_collective() {
  for (StandInCollective& collective : collectives_) {
    if (!collective.busy) return collective;
  }
  return collectives_.emplace_back(*mpi_, peers_, shared_.device, shared_.counts.collectives);
}

NcclResult StandInCommunicator::submit(StandInCollective& collective, CudaStream stream) {
  collective.busy = true;
  collective.number = shared_.counts.submitted++;
  collective.copies = static_cast<bool>(shared_.queues.access) || shared_.variation.varies();
  collective.hangs = collective.number == shared_.faults.hanging;
  settling_ = &collective;
  settling_stream_ = stream;
  return begin(State::settling, shared_.variation.polls(shared_.faults.settle_polls));
}

NcclResult StandInCommunicator::add_to_group(const StandInCollective::Part& part,
                                             CudaStream stream) {
  if (const auto refused = require_ready(); refused != NcclResult::success) return refused;
  if (!is_device_address(part.memory)) return NcclResult::invalid_argument;
  if (group_ == nullptr) {
    group_ = &free_collective();
    group_->work = {.kind = StandInCollective::Kind::group};
    group_->parts.clear();
  }
  group_stream_ = stream;
  group_->parts.push_back(part);
  group_->parts.back().memory = host_address(part.memory);
  return NcclResult::success;
}
NcclResult StandInCommunicator::end_group() {
  if (group_ == nullptr) return NcclResult::success;
  return submit(*std::exchange(group_, nullptr), group_stream_);
}

}  // namespace lockstep::test
