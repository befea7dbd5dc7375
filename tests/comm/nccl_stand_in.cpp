#include "comm/nccl_stand_in.hpp"

#include "lockstep/comm/mpi_communicator.hpp"

#include <functional>
#include <random>
#include <string_view>
#include <utility>

namespace lockstep::test {
NcclStandIn::NcclStandIn() : mpi_(make_mpi_communicator()) {
  MPI_Comm_dup(MPI_COMM_WORLD, &peers_);
}

NcclStandIn::~NcclStandIn() {
  if (!met_) post_start();
  mpi_->wait(start_);
  for (StandInCollective& collective : collectives_) {
    while (collective.busy && !collective.move()) {
    }
  }
  MPI_Comm_free(&peers_);
}

NcclResult NcclStandIn::get_unique_id(NcclUniqueId* id) {
  std::random_device random;
  for (char& byte : *id) byte = static_cast<char>(random());
  return NcclResult::success;
}

void NcclStandIn::post_start() {
  met_ = true;
  start_ = mpi_->start_all_reduce(std::span<std::int64_t>(meeting_), ReduceOp::min);
}

NcclResult NcclStandIn::comm_init_rank_config(NcclComm* comm, int ranks, const NcclUniqueId& id,
                                              int rank, const NcclConfig& config) {
  if (state_ != State::absent || config.blocking) return NcclResult::invalid_usage;
  if (ranks != mpi_->size() || rank != mpi_->rank()) return NcclResult::invalid_argument;
  if (faults.init_fails) return NcclResult::system_error;
  *comm = this;
  state_ = State::starting;
  polls_left_ = faults.init_polls;
  const auto hash = static_cast<std::int64_t>(
      std::hash<std::string_view>{}(std::string_view(id.data(), id.size())) >> 2U);
  meeting_[0] = hash;
  meeting_[1] = -hash;
  if (!faults.init_hangs) post_start();
  return NcclResult::in_progress;
}

NcclResult NcclStandIn::comm_get_async_error(NcclComm comm, NcclResult* state) {
  if (comm != this || state_ == State::absent) return NcclResult::invalid_argument;
  *state = NcclResult::in_progress;
  if (faults.error_after >= 0 && counts_.collectives >= faults.error_after &&
      state_ != State::starting) {
    *state = NcclResult::remote_error;
    return NcclResult::success;
  }
  if (polls_left_ > 0) --polls_left_;
  if (state_ == State::starting) {
    if (!met_ || !mpi_->test(start_) || polls_left_ > 0) return NcclResult::success;
    // Equal ids on all ranks: the least is the greatest.
    if (meeting_[0] != -meeting_[1]) *state = NcclResult::invalid_argument;
  } else if (polls_left_ > 0 || (state_ == State::finalizing && faults.finalize_hangs)) {
    return NcclResult::success;
  }
  if (settling_ != nullptr) queues.queue(settling_stream_, *settling_);
  settling_ = nullptr;
  if (*state == NcclResult::in_progress) *state = NcclResult::success;
  if (state_ != State::finalizing) state_ = State::ready;
  return NcclResult::success;
}

NcclResult NcclStandIn::refuse(NcclComm comm, State expected) const {
  if (comm != this) return NcclResult::invalid_argument;
  return state_ == expected ? NcclResult::success : NcclResult::invalid_usage;
}

NcclResult NcclStandIn::comm_finalize(NcclComm comm) {
  if (const auto refused = refuse(comm, State::ready); refused != NcclResult::success)
    return refused;
  ++counts_.finalized;
  state_ = State::finalizing;
  polls_left_ = 2;
  return NcclResult::in_progress;
}
NcclResult NcclStandIn::comm_destroy(NcclComm comm) noexcept {
  if (comm != this || state_ != State::finalizing) return NcclResult::invalid_usage;
  ++counts_.destroyed;
  state_ = State::absent;
  return NcclResult::success;
}
NcclResult NcclStandIn::comm_abort(NcclComm comm) noexcept {
  if (comm != this || state_ == State::absent) return NcclResult::invalid_usage;
  ++counts_.aborted;
  state_ = State::absent;
  settling_ = nullptr;
  for (StandInCollective& collective : collectives_) collective.aborted = true;
  return NcclResult::success;
}

NcclResult NcclStandIn::mem_alloc(void** memory, std::size_t bytes) {
  static_cast<void>(device_allocate(memory, bytes));
  return NcclResult::success;
}
NcclResult NcclStandIn::mem_free(void* memory) noexcept {
  device_release(memory);
  return NcclResult::success;
}
NcclResult NcclStandIn::comm_register(NcclComm comm, void* memory, std::size_t /*bytes*/,
                                      void** handle) {
  if (!is_device_address(memory)) return NcclResult::invalid_argument;
  if (const auto refused = refuse(comm, State::ready); refused != NcclResult::success)
    return refused;
  ++counts_.registered;
  *handle = memory;
  return NcclResult::success;
}
NcclResult NcclStandIn::comm_deregister(NcclComm comm, void* handle) noexcept {
  if (comm != this || !is_device_address(handle)) return NcclResult::invalid_argument;
  --counts_.registered;
  return NcclResult::success;
}
NcclResult NcclStandIn::comm_window_register(NcclComm comm, void* memory, std::size_t bytes,
                                             NcclWindow* window) {
  const NcclResult result = comm_register(comm, memory, bytes, window);
  if (result != NcclResult::success) return result;
  state_ = State::settling;
  polls_left_ = faults.settle_polls;
  return NcclResult::in_progress;
}
NcclResult NcclStandIn::comm_window_deregister(NcclComm comm, NcclWindow window) noexcept {
  return comm_deregister(comm, window);
}

NcclResult NcclStandIn::make(const StandInCollective::Work& work, NcclComm comm,
                             CudaStream stream) {
  if (const auto refused = refuse(comm, State::ready); refused != NcclResult::success)
    return refused;
  if (!is_device_address(work.from) || !is_device_address(work.to))
    return NcclResult::invalid_argument;
  StandInCollective& made = free_collective();
  made.work = work;
  made.work.from = host_address(work.from);
  made.work.to = host_address(work.to);
  return submit(made, stream);
}

StandInCollective& NcclStandIn::free_collective() {
  for (StandInCollective& collective : collectives_) {
    if (!collective.busy) return collective;
  }
  return collectives_.emplace_back(*mpi_, peers_, counts_.collectives);
}

NcclResult NcclStandIn::submit(StandInCollective& collective, CudaStream stream) {
  collective.busy = true;
  collective.hangs = submitted_++ == faults.hanging;
  if (faults.settle_polls == 0) {
    queues.queue(stream, collective);
    return NcclResult::success;
  }
  state_ = State::settling;
  polls_left_ = faults.settle_polls;
  settling_ = &collective;
  settling_stream_ = stream;
  return NcclResult::in_progress;
}

NcclResult NcclStandIn::all_reduce(const void* from, void* to, std::size_t count, NcclType type,
                                   NcclOp op, NcclComm comm, CudaStream stream) {
  return make({.kind = StandInCollective::Kind::all_reduce,
               .from = from,
               .to = to,
               .count = count,
               .type = type,
               .op = op},
              comm, stream);
}
NcclResult NcclStandIn::reduce_scatter(const void* from, void* to, std::size_t received_count,
                                       NcclType type, NcclOp op, NcclComm comm, CudaStream stream) {
  return make({.kind = StandInCollective::Kind::reduce_scatter,
               .from = from,
               .to = to,
               .count = received_count,
               .type = type,
               .op = op},
              comm, stream);
}
NcclResult NcclStandIn::all_gather(const void* from, void* to, std::size_t sent_count,
                                   NcclType type, NcclComm comm, CudaStream stream) {
  return make({.kind = StandInCollective::Kind::all_gather,
               .from = from,
               .to = to,
               .count = sent_count,
               .type = type},
              comm, stream);
}
NcclResult NcclStandIn::broadcast(const void* from, void* to, std::size_t count, NcclType type,
                                  int root, NcclComm comm, CudaStream stream) {
  return make({.kind = StandInCollective::Kind::broadcast,
               .from = from,
               .to = to,
               .count = count,
               .type = type,
               .root = root},
              comm, stream);
}

NcclResult NcclStandIn::add_to_group(const StandInCollective::Part& part, NcclComm comm,
                                     CudaStream stream) {
  if (const auto refused = refuse(comm, State::ready); refused != NcclResult::success)
    return refused;
  // On their own, a send and a receive would wait for each other.
  if (group_ == nullptr) return NcclResult::invalid_usage;
  if (!is_device_address(part.memory)) return NcclResult::invalid_argument;
  group_stream_ = stream;
  group_->parts.push_back(part);
  group_->parts.back().memory = host_address(part.memory);
  return NcclResult::success;
}
NcclResult NcclStandIn::send(const void* from, std::size_t count, NcclType type, int peer,
                             NcclComm comm, CudaStream stream) {
  return add_to_group({.receives = false,
                       .memory = const_cast<void*>(from),
                       .bytes = static_cast<int>(count * StandInCollective::size_of(type)),
                       .peer = peer},
                      comm, stream);
}
NcclResult NcclStandIn::recv(void* to, std::size_t count, NcclType type, int peer, NcclComm comm,
                             CudaStream stream) {
  return add_to_group({.receives = true,
                       .memory = to,
                       .bytes = static_cast<int>(count * StandInCollective::size_of(type)),
                       .peer = peer},
                      comm, stream);
}
NcclResult NcclStandIn::group_start() {
  if (state_ != State::ready || group_ != nullptr) return NcclResult::invalid_usage;
  group_ = &free_collective();
  group_->work = {.kind = StandInCollective::Kind::group};
  group_->parts.clear();
  return NcclResult::success;
}
NcclResult NcclStandIn::group_end() {
  if (group_ == nullptr) return NcclResult::invalid_usage;
  StandInCollective& group = *std::exchange(group_, nullptr);
  return group.parts.empty() ? NcclResult::success : submit(group, group_stream_);
}

std::string NcclStandIn::error_string(NcclResult result) const {
  return "NCCL error " + std::to_string(static_cast<int>(result));
}
std::string NcclStandIn::last_error(NcclComm /*comm*/) const {
  return "the stand-in was told to";
}

}  // namespace lockstep::test
