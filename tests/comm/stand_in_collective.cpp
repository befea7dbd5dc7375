#include "comm/stand_in_collective.hpp"

#include <cstdlib>
#include <cstring>

namespace lockstep::test {
namespace {

ElementType element_type_of(NcclType type) {
  switch (type) {
    case NcclType::u8:
      return ElementType::u8;
    case NcclType::i32:
      return ElementType::i32;
    case NcclType::i64:
      return ElementType::i64;
    case NcclType::u64:
      return ElementType::u64;
    case NcclType::f16:
      return ElementType::f16;
    case NcclType::f32:
      return ElementType::f32;
    case NcclType::f64:
      return ElementType::f64;
    case NcclType::bf16:
      return ElementType::bf16;
  }
  std::abort();
}
ReduceOp reduce_op_of(NcclOp op) {
  return op == NcclOp::sum ? ReduceOp::sum : op == NcclOp::min ? ReduceOp::min : ReduceOp::max;
}

}  // namespace

std::size_t StandInCollective::size_of(NcclType type) {
  switch (type) {
    case NcclType::u8:
      return 1;
    case NcclType::f16:
    case NcclType::bf16:
      return 2;
    case NcclType::i32:
    case NcclType::f32:
      return 4;
    case NcclType::i64:
    case NcclType::u64:
    case NcclType::f64:
      return 8;
  }
  std::abort();
}

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
  const ElementType element = element_type_of(type);
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
        request_ = mpi_.start_all_reduce_buffer({result, count, element}, reduce_op_of(op));
      }
      break;
    case Kind::reduce_scatter:
      if (!posted_) {
        request_ = mpi_.start_reduce_scatter_buffer({source, all, element},
                                                    {result, count, element}, reduce_op_of(op));
      }
      break;
    case Kind::all_gather:
      if (!posted_) {
        request_ = mpi_.start_all_gather_buffer({source, count, element}, {result, all, element});
      }
      break;
    case Kind::broadcast:
      if (source != result) std::memcpy(result, source, bytes);
      mpi_.broadcast_buffer({result, count, element}, root);
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
