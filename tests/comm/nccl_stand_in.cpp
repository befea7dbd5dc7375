#include "comm/nccl_stand_in.hpp"

#include "lockstep/comm/element_size.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>

namespace lockstep::test {

NcclStandIn::NcclStandIn() {
  communicators_.emplace_back(shared_, 0, 0);
}
NcclStandIn::NcclStandIn(std::span<const std::vector<int>> sets) {
  add(sets);
}
void NcclStandIn::add(std::span<const std::vector<int>> sets) {
  int number = 0;
  for (const std::vector<int>& ranks : sets) {
    communicators_.emplace_back(shared_, number++, ranks.front());
  }
}

// A rank that timed out must not send while others still wait: their collective would complete.
NcclStandIn::~NcclStandIn() {
  MPI_Barrier(MPI_COMM_WORLD);
}

void NcclStandIn::vary(std::uint64_t seed) {
  if (seed == 0) return;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  variation_ = StandInVariation(seed, rank);
}

StandInCommunicator* NcclStandIn::find(NcclComm comm) noexcept {
  for (StandInCommunicator& communicator : communicators_) {
    if (comm == &communicator) return &communicator;
  }
  ++counts_.misuses;
  return nullptr;
}

NcclResult NcclStandIn::get_unique_id(NcclUniqueId* id) {
  std::random_device random;
  for (char& byte : *id) byte = static_cast<char>(random());
  ++counts_.ids;
  return NcclResult::success;
}

NcclResult NcclStandIn::comm_init_rank_config(NcclComm* comm, int ranks, const NcclUniqueId& id,
                                              int rank, const NcclConfig& config) {
  return start(comm, ranks, {&id, 1}, rank, config);
}
NcclResult NcclStandIn::comm_init_rank_scalable(NcclComm* comm, int ranks, int rank,
                                                std::span<const NcclUniqueId> ids,
                                                const NcclConfig& config) {
  if (faults.no_scalable_init) return NcclResult::invalid_usage;
  if (ids.empty() || ids.size() > static_cast<std::size_t>(ranks))
    return NcclResult::invalid_argument;
  ++counts_.scalable;
  return start(comm, ranks, ids, rank, config);
}
NcclResult NcclStandIn::comm_split(NcclComm parent, int color, int key, NcclComm* made,
                                   const NcclConfig& config) {
  auto* const found = find(parent);
  if (found == nullptr || color < 0) return NcclResult::invalid_argument;
  if (config.blocking || found->require_ready() != NcclResult::success) {
    return NcclResult::invalid_usage;
  }
  if (started_ == communicators_.size()) {
    communicators_.emplace_back(*found, static_cast<int>(started_), color, key);
  }
  ++counts_.split;
  return found->split(communicators_[started_++], color, key, made);
}
NcclResult NcclStandIn::start(NcclComm* comm, int ranks, std::span<const NcclUniqueId> ids,
                              int rank, const NcclConfig& config) {
  if (started_ == communicators_.size() || config.blocking) return NcclResult::invalid_usage;
  StandInCommunicator& communicator = communicators_[started_++];
  const NcclResult result = communicator.init(ranks, {ids.front().data(), ids.size_bytes()}, rank);
  if (result == NcclResult::in_progress) *comm = &communicator;
  return result;
}

NcclResult NcclStandIn::comm_get_async_error(NcclComm comm, NcclResult* state) {
  auto* const found = find(comm);
  return found == nullptr ? NcclResult::invalid_argument : found->get_async_error(state);
}
NcclResult NcclStandIn::comm_finalize(NcclComm comm) {
  auto* const found = find(comm);
  return found == nullptr ? NcclResult::invalid_argument : found->finalize();
}
NcclResult NcclStandIn::comm_destroy(NcclComm comm) noexcept {
  auto* const found = find(comm);
  return found == nullptr ? NcclResult::invalid_argument : found->destroy();
}
NcclResult NcclStandIn::comm_abort(NcclComm comm) noexcept {
  auto* const found = find(comm);
  if (found == nullptr) return NcclResult::invalid_argument;
  const NcclResult result = found->abort();
  if (grouping_) {
    aborting_ = true;
  } else {
    wait_for_device();
  }
  return result;
}
void NcclStandIn::wait_for_device() {
  // NCCL would wait forever; the stand-in ends the test instead.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::ranges::any_of(communicators_, &StandInCommunicator::has_queued)) {
    if (std::chrono::steady_clock::now() > limit) {
      std::fputs("ncclCommAbort hangs: a collective of another communicator is queued\n", stderr);
      std::abort();
    }
    queues.sweep();
  }
}

NcclResult NcclStandIn::mem_alloc(void** memory, std::size_t bytes) {
  static_cast<void>(device_allocate(memory, bytes));
  return NcclResult::success;
}
NcclResult NcclStandIn::mem_free(void* memory) noexcept {
  device_release(memory);
  return NcclResult::success;
}
NcclResult NcclStandIn::add_memory(NcclComm comm, void* memory, std::size_t bytes) {
  auto* const found = find(comm);
  if (found == nullptr || !is_device_address(memory)) return NcclResult::invalid_argument;
  if (const auto refused = found->require_ready(); refused != NcclResult::success) return refused;
  registered_.push_back({comm, static_cast<std::byte*>(memory), bytes});
  ++counts_.registered;
  return NcclResult::success;
}
NcclResult NcclStandIn::remove_memory(NcclComm comm, void* handle) noexcept {
  auto* const of = find(comm);
  const auto found = std::ranges::find_if(registered_, [&](const Registered& each) {
    return each.comm == comm && each.memory == handle;
  });
  if (of == nullptr || found == registered_.end()) return NcclResult::invalid_argument;
  if (const auto refused = of->require_ready(); refused != NcclResult::success) return refused;
  registered_.erase(found);
  --counts_.registered;
  return of->register_memory(0, nullptr, nullptr);
}
NcclResult NcclStandIn::comm_register(NcclComm comm, void* memory, std::size_t bytes,
                                      void** handle) {
  const NcclResult result = add_memory(comm, memory, bytes);
  return result == NcclResult::success ? find(comm)->register_memory(0, handle, memory) : result;
}
NcclResult NcclStandIn::comm_deregister(NcclComm comm, void* handle) noexcept {
  return remove_memory(comm, handle);
}
NcclResult NcclStandIn::comm_window_register(NcclComm comm, void* memory, std::size_t bytes,
                                             NcclWindow* window) {
  const bool refuses = variation_.refuses_window(faults.no_windows);
  auto* const found = find(comm);
  if (found == nullptr) return NcclResult::invalid_argument;
  const NcclResult result = refuses ? found->require_ready() : add_memory(comm, memory, bytes);
  if (result != NcclResult::success) return result;
  if (!refuses) ++counts_.windows;
  return found->register_memory(faults.settle_polls, window, refuses ? nullptr : memory);
}
NcclResult NcclStandIn::comm_window_deregister(NcclComm comm, NcclWindow window) noexcept {
  --counts_.windows;
  return remove_memory(comm, window);
}

bool NcclStandIn::is_registered(NcclComm comm, const void* memory, std::size_t bytes) const {
  return std::ranges::any_of(registered_, [&](const Registered& each) {
    const auto* const begin = static_cast<const std::byte*>(memory);
    return each.comm == comm && begin >= each.memory && begin + bytes <= each.memory + each.bytes;
  });
}
NcclResult NcclStandIn::make(const StandInCollective::Work& work, NcclComm comm,
                             CudaStream stream) {
  auto* const found = find(comm);
  if (found == nullptr) return NcclResult::invalid_argument;
  using Kind = StandInCollective::Kind;
  const std::size_t block = work.count * size_of(work.type);
  const std::size_t all = block * static_cast<std::size_t>(found->ranks());
  // Barriers reduce a byte of other memory.
  const bool is_token = work.count == 1 && work.type == ElementType::u8;
  if (!is_token &&
      (!is_registered(comm, work.from, work.kind == Kind::reduce_scatter ? all : block) ||
       !is_registered(comm, work.to, work.kind == Kind::all_gather ? all : block))) {
    ++counts_.unknown;
  }
  return found->make(work, stream);
}
NcclResult NcclStandIn::all_reduce(const void* from, void* to, std::size_t count, ElementType type,
                                   ReduceOp op, NcclComm comm, CudaStream stream) {
  return make({.kind = StandInCollective::Kind::all_reduce,
               .from = from,
               .to = to,
               .count = count,
               .type = type,
               .op = op},
              comm, stream);
}
NcclResult NcclStandIn::reduce_scatter(const void* from, void* to, std::size_t received_count,
                                       ElementType type, ReduceOp op, NcclComm comm,
                                       CudaStream stream) {
  return make({.kind = StandInCollective::Kind::reduce_scatter,
               .from = from,
               .to = to,
               .count = received_count,
               .type = type,
               .op = op},
              comm, stream);
}
NcclResult NcclStandIn::all_gather(const void* from, void* to, std::size_t sent_count,
                                   ElementType type, NcclComm comm, CudaStream stream) {
  return make({.kind = StandInCollective::Kind::all_gather,
               .from = from,
               .to = to,
               .count = sent_count,
               .type = type},
              comm, stream);
}
NcclResult NcclStandIn::broadcast(const void* from, void* to, std::size_t count, ElementType type,
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
  auto* const found = find(comm);
  if (found == nullptr) return NcclResult::invalid_argument;
  // Outside a group, a send and a receive would wait for each other.
  return grouping_ ? found->add_to_group(part, stream) : NcclResult::invalid_usage;
}
NcclResult NcclStandIn::send(const void* from, std::size_t count, ElementType type, int peer,
                             NcclComm comm, CudaStream stream) {
  return add_to_group({.receives = false,
                       .memory = const_cast<void*>(from),
                       .bytes = static_cast<int>(count * size_of(type)),
                       .peer = peer},
                      comm, stream);
}
NcclResult NcclStandIn::recv(void* to, std::size_t count, ElementType type, int peer, NcclComm comm,
                             CudaStream stream) {
  return add_to_group({.receives = true,
                       .memory = to,
                       .bytes = static_cast<int>(count * size_of(type)),
                       .peer = peer},
                      comm, stream);
}
NcclResult NcclStandIn::group_start() {
  if (grouping_) return NcclResult::invalid_usage;
  grouping_ = true;
  return NcclResult::success;
}
NcclResult NcclStandIn::group_end() {
  if (!grouping_) return NcclResult::invalid_usage;
  grouping_ = false;
  NcclResult worst = NcclResult::success;
  for (StandInCommunicator& communicator : communicators_) {
    if (const auto result = communicator.end_group(); result != NcclResult::success) worst = result;
  }
  if (std::exchange(aborting_, false)) wait_for_device();
  return worst;
}

std::string NcclStandIn::error_string(NcclResult result) const {
  return "NCCL error " + std::to_string(static_cast<int>(result));
}
std::string NcclStandIn::last_error(NcclComm /*comm*/) const {
  if (shared_.lost < 0) return "the stand-in was told to";
  return "connection closed by rank " + std::to_string(shared_.lost) + " of the job";
}

}  // namespace lockstep::test
