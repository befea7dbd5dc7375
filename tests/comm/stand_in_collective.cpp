#include "comm/stand_in_collective.hpp"

#include "lockstep/comm/element_size.hpp"

#include <cstring>

namespace lockstep::test {
void StandInCollective::abort() noexcept {
  aborted_ = true;
  if (device_.occupant == this) device_.occupant = nullptr;
}

bool StandInCollective::attempt() {
  if (aborted_) return true;
  if (device_.occupant != nullptr && device_.occupant != this) return false;
  device_.occupant = this;
  if (hangs || !move()) return false;
  device_.occupant = nullptr;
  busy = false;
  ++made_;
  return true;
}

bool StandInCollective::move() {
  const auto& [kind, from, to, count, type, op, root] = work;
  const auto ranks = static_cast<std::size_t>(mpi_.size());
  const auto all = count * ranks;
  const std::size_t bytes = count * size_of(type);
  const void* source = from;
  void* result = to;
  if (copies && !posted_ && kind != Kind::group) {
    const auto* const first = static_cast<const std::byte*>(from);
    source_.assign(first, first + (kind == Kind::reduce_scatter ? ranks : 1) * bytes);
    result_.resize((kind == Kind::all_gather ? ranks : 1) * bytes);
    source = source_.data();
    result = result_.data();
  }
  switch (kind) {
    case Kind::all_reduce:
      if (!posted_) {
        if (source != result) std::memcpy(result, source, bytes);
        request_ = mpi_.start_all_reduce_buffer({result, count, type}, op);
      }
      break;
    case Kind::reduce_scatter:
      if (!posted_) {
        request_ = mpi_.start_reduce_scatter_buffer({source, all, type}, {result, count, type}, op);
      }
      break;
    case Kind::all_gather:
      if (!posted_) {
        request_ = mpi_.start_all_gather_buffer({source, count, type}, {result, all, type});
      }
      break;
    case Kind::broadcast:
      if (source != result) std::memcpy(result, source, bytes);
      mpi_.broadcast_buffer({result, count, type}, root);
      break;
    case Kind::group:
      if (!exchange()) return false;
      break;
  }
  posted_ = true;
  if (!mpi_.test(request_)) return false;
  posted_ = false;
  if (copies) deliver();
  return true;
}

void StandInCollective::deliver() {
  if (work.kind != Kind::group) {
    std::memcpy(work.to, result_.data(), result_.size());
    return;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].receives) {
      std::memcpy(parts[i].memory, part_copies_[i].data(), part_copies_[i].size());
    }
  }
}

bool StandInCollective::exchange() {
  if (!posted_) {
    posted_ = true;
    requests_.resize(parts.size());
    if (copies) part_copies_.resize(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      auto [receives, memory, bytes, peer] = parts[i];
      if (copies) {
        const auto* const first = static_cast<const std::byte*>(memory);
        part_copies_[i].assign(first, first + bytes);
        memory = part_copies_[i].data();
      }
      if (receives) {
        MPI_Irecv(memory, bytes, MPI_BYTE, peer, 0, peers_, &requests_[i]);
      } else {
        MPI_Isend(memory, bytes, MPI_BYTE, peer, 0, peers_, &requests_[i]);
      }
    }
  }
  int done = 0;
  MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
  return done != 0;
}

}  // namespace lockstep::test
