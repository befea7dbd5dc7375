#include "lockstep/comm/mpi_communicator.hpp"

#include "element_size.hpp"
#include "lockstep/core/error.hpp"
#include "processor_name.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

MPI_Datatype datatype(ElementType type) noexcept {
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

/// MPI knows no 16-bit floats: what it does with two of them, each pair in fp32.
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

/// The operators of a 16-bit type.
template <typename T>
class NarrowOperators final {
 public:
  NarrowOperators() {
    // Commutative: a + b and b + a round alike, so all ranks end with the same bits.
    MPI_Op_create(reduce_pairs<T, ReduceOp::sum>, 1, &sum_);
    MPI_Op_create(reduce_pairs<T, ReduceOp::min>, 1, &min_);
    MPI_Op_create(reduce_pairs<T, ReduceOp::max>, 1, &max_);
  }
  NarrowOperators(const NarrowOperators&) = delete;
  NarrowOperators& operator=(const NarrowOperators&) = delete;
  ~NarrowOperators() {
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

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MpiCommunicatorOptions options)
      : largest_piece_(options.largest_piece), host_(processor_name()) {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    MPI_Comm_size(comm_, &size_);
    // How many requests run at once is a matter of time, and may be more in a later step.
    for (Slot& slot : slots_) slot.pieces.reserve(1);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;
  ~MpiCommunicator() override {
    // After a failure requests may be under way that never end, and still use it.
    if (std::ranges::none_of(slots_, &Slot::active)) MPI_Comm_free(&comm_);
  }

  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return size_; }

  void barrier() override { check(MPI_Barrier(comm_), "MPI_Barrier"); }

  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    in_pieces(buffer.count, [&](std::size_t offset, int count) {
      check(MPI_Allreduce(MPI_IN_PLACE, at(buffer, offset), count, datatype(buffer.type),
                          operation(buffer.type, op), comm_),
            "MPI_Allreduce");
    });
  }

  void broadcast_buffer(MutableBuffer buffer, int root) override {
    in_pieces(buffer.count, [&](std::size_t offset, int count) {
      check(MPI_Bcast(at(buffer, offset), count, datatype(buffer.type), root, comm_), "MPI_Bcast");
    });
  }

  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    if (mine.count == 0) return;
    const Block block(mine.count, mine.type, largest_piece_);
    check(MPI_Allgather(mine.data, 1, block.get(), all.data, 1, block.get(), comm_),
          "MPI_Allgather");
  }

  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    if (mine.count == 0) return;
    const Block block(mine.count, mine.type, largest_piece_);
    check(MPI_Gather(mine.data, 1, block.get(), all.data, 1, block.get(), root, comm_),
          "MPI_Gather");
  }

  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    if (mine.count == 0) return;
    const Block block(mine.count, mine.type, largest_piece_);
    check(MPI_Scatter(all.data, 1, block.get(), mine.data, 1, block.get(), root, comm_),
          "MPI_Scatter");
  }

  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    if (mine.count == 0) return;
    if (mine.count > largest_piece_) {
      reduce_scatter_in_pieces(all, mine, op);
      return;
    }
    check(MPI_Reduce_scatter_block(all.data, mine.data, static_cast<int>(mine.count),
                                   datatype(mine.type), operation(mine.type, op), comm_),
          "MPI_Reduce_scatter_block");
  }

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    if (buffer.count == 0) return {};
    std::size_t slot = 0;
    while (slot < slots_.size() && slots_[slot].active) ++slot;
    if (slot == slots_.size()) slots_.emplace_back();
    Slot& chosen = slots_[slot];
    chosen.active = true;
    chosen.pieces.clear();  // keeps its capacity, so a step allocates nothing
    in_pieces(buffer.count, [&](std::size_t offset, int count) {
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Iallreduce(MPI_IN_PLACE, at(buffer, offset), count, datatype(buffer.type),
                           operation(buffer.type, op), comm_, &request),
            "MPI_Iallreduce");
      chosen.pieces.push_back(request);
    });
    return {.slot = static_cast<int>(slot)};
  }

  bool test(Request& request) override {
    if (request.done()) return true;
    Slot& slot = slots_[static_cast<std::size_t>(request.slot)];
    int done = 0;
    check(MPI_Testall(static_cast<int>(slot.pieces.size()), slot.pieces.data(), &done,
                      MPI_STATUSES_IGNORE),
          "MPI_Testall");
    if (done == 0) return false;
    slot.active = false;
    request.slot = -1;
    return true;
  }

  void wait(Request& request) override {
    if (request.done()) return;
    Slot& slot = slots_[static_cast<std::size_t>(request.slot)];
    check(
        MPI_Waitall(static_cast<int>(slot.pieces.size()), slot.pieces.data(), MPI_STATUSES_IGNORE),
        "MPI_Waitall");
    slot.active = false;
    request.slot = -1;
  }

 private:
  [[nodiscard]] MPI_Op operation(ElementType type, ReduceOp op) const noexcept {
    if (type == ElementType::bf16) return bf16_.get(op);
    if (type == ElementType::f16) return f16_.get(op);
    return op == ReduceOp::sum ? MPI_SUM : op == ReduceOp::min ? MPI_MIN : MPI_MAX;
  }

  struct Slot {
    bool active = false;
    std::vector<MPI_Request> pieces;
  };

  /// `count` values as one datatype, so that counts beyond 2^31 fit a single call.
  class Block final {
   public:
    Block(std::size_t count, ElementType type, std::size_t largest_piece) {
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
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() { MPI_Type_free(&type_); }
    [[nodiscard]] MPI_Datatype get() const noexcept { return type_; }

   private:
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
  };

  /// Calls `visit(offset, count)` for pieces of [0, count).
  template <typename Visitor>
  void in_pieces(std::size_t count, Visitor&& visit) const {
    for (std::size_t offset = 0; offset < count; offset += largest_piece_) {
      visit(offset, static_cast<int>(std::min(largest_piece_, count - offset)));
    }
  }

  /// Reductions take no derived types, so each rank's block goes to it piece by piece.
  void reduce_scatter_in_pieces(ConstBuffer all, MutableBuffer mine, ReduceOp op) {
    const auto* const values = static_cast<const std::byte*>(all.data);
    for (int root = 0; root < size_; ++root) {
      const std::size_t block = static_cast<std::size_t>(root) * mine.count;
      in_pieces(mine.count, [&](std::size_t offset, int count) {
        check(MPI_Reduce(values + (block + offset) * size_of(all.type), at(mine, offset), count,
                         datatype(mine.type), operation(mine.type, op), root, comm_),
              "MPI_Reduce");
      });
    }
  }

  static void* at(MutableBuffer buffer, std::size_t offset) noexcept {
    return static_cast<std::byte*>(buffer.data) + offset * size_of(buffer.type);
  }

  void check(int code, const char* call) const {
    if (code == MPI_SUCCESS) return;
    std::array<char, MPI_MAX_ERROR_STRING> text{};
    int length = 0;
    MPI_Error_string(code, text.data(), &length);
    fail(ExitStatus::internal, "{} failed on rank {} ({}): {}", call, rank_, host_, text.data());
  }

  std::size_t largest_piece_;
  std::string host_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  NarrowOperators<Bfloat16> bf16_;
  NarrowOperators<Float16> f16_;
  std::vector<Slot> slots_ = std::vector<Slot>(64);
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MpiCommunicatorOptions options) {
  return std::make_unique<MpiCommunicator>(options);
}

}  // namespace lockstep
