#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/element_size.hpp"

#include <mpi.h>

#include <cstddef>

namespace lockstep {

[[nodiscard]] inline MPI_Datatype datatype(ElementType type) noexcept {
  switch (type) {
    case ElementType::f32:
      return MPI_FLOAT;
    case ElementType::f64:
      return MPI_DOUBLE;
    case ElementType::i32:
      return MPI_INT32_T;
    case ElementType::i64:
      return MPI_INT64_T;
    case ElementType::u64:
      return MPI_UINT64_T;
    case ElementType::u8:
      return MPI_UINT8_T;
    case ElementType::bf16:
    case ElementType::f16:
      return MPI_UINT16_T;
  }
  return MPI_BYTE;
}

/// MPI_User_function for 16-bit floats, which MPI lacks; computes each pair in fp32.
template <typename T, ReduceOp op>
void reduce_pairs(void* from, void* to, int* count, MPI_Datatype* /*type*/) {
  const T* left = static_cast<const T*>(from);
  T* right = static_cast<T*>(to);
  for (int i = 0; i < *count; ++i) {
    const float a{left[i]};
    const float b{right[i]};
    if constexpr (op == ReduceOp::sum) right[i] = T(a + b);
    if constexpr (op == ReduceOp::min) right[i] = T(a < b || a != a ? a : b);
    if constexpr (op == ReduceOp::max) right[i] = T(a > b || a != a ? a : b);
  }
}

/// The MPI operators of a 16-bit type.
template <typename T>
class Operators16 final {
 public:
  Operators16() {
    // Commutative: a + b and b + a round to the same value, so all ranks get the same bits.
    MPI_Op_create(reduce_pairs<T, ReduceOp::sum>, 1, &sum_);
    MPI_Op_create(reduce_pairs<T, ReduceOp::min>, 1, &min_);
    MPI_Op_create(reduce_pairs<T, ReduceOp::max>, 1, &max_);
  }
  Operators16(const Operators16&) = delete;
  Operators16& operator=(const Operators16&) = delete;
  ~Operators16() {
    for (MPI_Op* op : {&sum_, &min_, &max_}) MPI_Op_free(op);
  }
  [[nodiscard]] MPI_Op get(ReduceOp op) const noexcept {
    return op == ReduceOp::sum ? sum_ : op == ReduceOp::min ? min_ : max_;
  }

 private:
  MPI_Op sum_ = MPI_OP_NULL;
  MPI_Op min_ = MPI_OP_NULL;
  MPI_Op max_ = MPI_OP_NULL;
};

/// Count and datatype to pass `count` values in one MPI call. A count above `largest_piece` becomes
/// one element of a derived datatype. Calls in flight may outlive it: MPI keeps the datatype.
class MpiBlock final {
 public:
  MpiBlock(std::size_t count, ElementType type, std::size_t largest_piece)
      : count_(static_cast<int>(count)), type_(datatype(type)), is_own_(count > largest_piece) {
    if (!is_own_) return;
    const std::size_t whole = count / largest_piece;
    MPI_Datatype piece = MPI_DATATYPE_NULL;
    MPI_Datatype rest = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(largest_piece), datatype(type), &piece);
    MPI_Type_contiguous(static_cast<int>(count % largest_piece), datatype(type), &rest);
    const int lengths[] = {static_cast<int>(whole), 1};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(whole * largest_piece * size_of(type))};
    const MPI_Datatype types[] = {piece, rest};
    MPI_Type_create_struct(2, lengths, places, types, &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&piece);
    MPI_Type_free(&rest);
    count_ = 1;
  }
  MpiBlock(const MpiBlock&) = delete;
  MpiBlock& operator=(const MpiBlock&) = delete;
  ~MpiBlock() {
    if (is_own_) MPI_Type_free(&type_);
  }
  [[nodiscard]] int count() const noexcept { return count_; }
  [[nodiscard]] MPI_Datatype type() const noexcept { return type_; }

 private:
  int count_;
  MPI_Datatype type_;
  bool is_own_;
};

}  // namespace lockstep
