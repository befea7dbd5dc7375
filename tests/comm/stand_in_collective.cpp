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
  const auto all = count * static_cast<std::size_t>(mpi_.size());
  switch (kind) {
    case Kind::all_reduce:
      if (!posted_) {
        if (from != to) std::memcpy(to, from, count * size_of(type));
        request_ = mpi_.start_all_reduce_buffer({to, count, element}, reduce_op_of(op));
      }
      break;
    case Kind::reduce_scatter:
      if (!posted_) {
        request_ = mpi_.start_reduce_scatter_buffer({from, all, element}, {to, count, element},
                                                    reduce_op_of(op));
      }
      break;
    case Kind::all_gather:
      if (!posted_) {
        request_ = mpi_.start_all_gather_buffer({from, count, element}, {to, all, element});
      }
      break;
    case Kind::broadcast:
      if (from != to) std::memcpy(to, from, count * size_of(type));
      mpi_.broadcast_buffer({to, count, element}, root);
      break;
    case Kind::group:
      if (!exchange()) return false;
      break;
  }
  posted_ = true;
  if (!mpi_.test(request_)) return false;
  posted_ = false;
  return true;
}

bool StandInCollective::exchange() {
  if (!posted_) {
    posted_ = true;
    requests_.resize(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto& [receives, memory, bytes, peer] = parts[i];
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
