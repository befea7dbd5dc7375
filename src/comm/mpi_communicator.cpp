#include "lockstep/comm/mpi_communicator.hpp"

#include "exchange/exchange_progress.hpp"
#include "keep_until_exit.hpp"
#include "lockstep/comm/mpi_lock.hpp"
#include "lockstep/core/error.hpp"
#include "mpi_group_of.hpp"
#include "mpi_types.hpp"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <type_traits>
#include <utility>

namespace lockstep {
namespace {

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(std::unique_ptr<MpiGroup> group, std::size_t largest_piece)
      : largest_piece_(largest_piece), group_(std::move(group)) {
    // More requests may be in flight in a later step than in the first, and steps must not
    // allocate.
    for (Slot& slot : slots_) slot.pieces.reserve(1);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;
  ~MpiCommunicator() override {
    // After a failure, requests may remain in flight forever and still use the communicator.
    if (std::ranges::any_of(slots_, &Slot::active)) group_->abandon();
    for (Slot& slot : slots_) {
      if (!slot.active) continue;
      for (MemoryOwner& owner : slot.owners) keep_until_exit(std::move(owner));
    }
  }

  [[nodiscard]] int rank() const noexcept override { return group_->rank(); }
  [[nodiscard]] int size() const noexcept override { return group_->size(); }

  void barrier() override {
    const std::lock_guard lock(mpi_mutex());
    check(MPI_Barrier(group_->get()), "MPI_Barrier");
  }

  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    const std::lock_guard lock(mpi_mutex());
    in_pieces(buffer.count, [&](std::size_t offset, int count) {
      check(MPI_Allreduce(MPI_IN_PLACE, at(buffer, offset), count, datatype(buffer.type),
                          operation(buffer.type, op), group_->get()),
            "MPI_Allreduce");
    });
  }

  void broadcast_buffer(MutableBuffer buffer, int root) override {
    const std::lock_guard lock(mpi_mutex());
    in_pieces(buffer.count, [&](std::size_t offset, int count) {
      check(MPI_Bcast(at(buffer, offset), count, datatype(buffer.type), root, group_->get()),
            "MPI_Bcast");
    });
  }

  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    const std::lock_guard lock(mpi_mutex());
    if (mine.count == 0) return;
    const MpiBlock block(mine.count, mine.type, largest_piece_);
    check(MPI_Allgather(sent(mine, all), block.count(), block.type(), all.data, block.count(),
                        block.type(), group_->get()),
          "MPI_Allgather");
  }

  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    const std::lock_guard lock(mpi_mutex());
    if (mine.count == 0) return;
    const MpiBlock block(mine.count, mine.type, largest_piece_);
    check(MPI_Gather(mine.data, block.count(), block.type(), all.data, block.count(), block.type(),
                     root, group_->get()),
          "MPI_Gather");
  }

  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    const std::lock_guard lock(mpi_mutex());
    if (mine.count == 0) return;
    const MpiBlock block(mine.count, mine.type, largest_piece_);
    check(MPI_Scatter(all.data, block.count(), block.type(), mine.data, block.count(), block.type(),
                      root, group_->get()),
          "MPI_Scatter");
  }

  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    const std::lock_guard lock(mpi_mutex());
    if (mine.count == 0) return;
    if (mine.count > largest_piece_) {
      in_pieces_by_root(all, mine, [&](int root, const void* from, void* to, int count) {
        check(MPI_Reduce(from, to, count, datatype(mine.type), operation(mine.type, op), root,
                         group_->get()),
              "MPI_Reduce");
      });
      return;
    }
    check(MPI_Reduce_scatter_block(all.data, mine.data, static_cast<int>(mine.count),
                                   datatype(mine.type), operation(mine.type, op), group_->get()),
          "MPI_Reduce_scatter_block");
  }

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    const std::lock_guard lock(mpi_mutex());
    if (buffer.count == 0) return {};
    Slot& slot = take_slot({buffer.owner});
    in_pieces(buffer.count, [&](std::size_t offset, int count) {
      check(MPI_Iallreduce(MPI_IN_PLACE, at(buffer, offset), count, datatype(buffer.type),
                           operation(buffer.type, op), group_->get(), slot.next()),
            "MPI_Iallreduce");
    });
    return request_of(slot);
  }

  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    const std::lock_guard lock(mpi_mutex());
    if (mine.count == 0) return {};
    Slot& slot = take_slot({all.owner, mine.owner});
    if (mine.count > largest_piece_) {
      in_pieces_by_root(all, mine, [&](int root, const void* from, void* to, int count) {
        check(MPI_Ireduce(from, to, count, datatype(mine.type), operation(mine.type, op), root,
                          group_->get(), slot.next()),
              "MPI_Ireduce");
      });
    } else {
      check(MPI_Ireduce_scatter_block(all.data, mine.data, static_cast<int>(mine.count),
                                      datatype(mine.type), operation(mine.type, op), group_->get(),
                                      slot.next()),
            "MPI_Ireduce_scatter_block");
    }
    return request_of(slot);
  }

  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    const std::lock_guard lock(mpi_mutex());
    if (mine.count == 0) return {};
    Slot& slot = take_slot({mine.owner, all.owner});
    const MpiBlock block(mine.count, mine.type, largest_piece_);
    check(MPI_Iallgather(sent(mine, all), block.count(), block.type(), all.data, block.count(),
                         block.type(), group_->get(), slot.next()),
          "MPI_Iallgather");
    return request_of(slot);
  }

  [[nodiscard]] Request start_send_buffer(ConstBuffer buffer, int to) override {
    return start_message(buffer, to);
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer buffer, int from) override {
    return start_message(buffer, from);
  }

  bool test(Request& request) override {
    if (request.done()) return true;
    const std::unique_lock lock(mpi_mutex(), std::try_to_lock);
    if (!lock) return false;
    Slot& slot = slots_[static_cast<std::size_t>(request.slot)];
    int done = 0;
    if (slot.receives == 0) {
      check(MPI_Testall(static_cast<int>(slot.pieces.size()), slot.pieces.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
    } else {
      MPI_Status status;
      check(MPI_Test(slot.pieces.data(), &done, &status), "MPI_Test");
      if (done != 0) require_whole(slot, status);
    }
    if (done == 0) return false;
    release(request);
    return true;
  }

  void wait(Request& request) override {
    if (request.done()) return;
    if (!progress_.is_idle()) return progress_.wait_until([&] { return test(request); });
    const std::lock_guard lock(mpi_mutex());
    Slot& slot = slots_[static_cast<std::size_t>(request.slot)];
    if (slot.receives == 0) {
      check(MPI_Waitall(static_cast<int>(slot.pieces.size()), slot.pieces.data(),
                        MPI_STATUSES_IGNORE),
            "MPI_Waitall");
    } else {
      MPI_Status status;
      check(MPI_Wait(slot.pieces.data(), &status), "MPI_Wait");
      require_whole(slot, status);
    }
    release(request);
  }

  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    const std::lock_guard lock(mpi_mutex());
    return std::make_unique<MpiCommunicator>(std::make_unique<MpiGroup>(*group_, color, key),
                                             largest_piece_);
  }
  [[nodiscard]] std::unique_ptr<MpiGroup> take_group() noexcept { return std::move(group_); }

 private:
  static constexpr int message_tag = 0;

  [[nodiscard]] MPI_Op operation(ElementType type, ReduceOp op) const noexcept {
    if (type == ElementType::bf16) return bf16_.get(op);
    if (type == ElementType::f16) return f16_.get(op);
    return op == ReduceOp::sum ? MPI_SUM : op == ReduceOp::min ? MPI_MIN : MPI_MAX;
  }

  struct Slot {
    bool active = false;  ///< also after a failed start: a part of it may be in flight
    std::array<MemoryOwner, 2> owners;
    std::vector<MPI_Request> pieces;
    std::size_t receives = 0;  ///< values of a message that is received; else 0
    MPI_Datatype type = MPI_DATATYPE_NULL;
    /// Adds a request for one more MPI call.
    [[nodiscard]] MPI_Request* next() { return &pieces.emplace_back(MPI_REQUEST_NULL); }
  };
  [[nodiscard]] Slot& take_slot(std::array<MemoryOwner, 2> owners) {
    auto slot = std::ranges::find(slots_, false, &Slot::active);
    if (slot == slots_.end()) slot = slots_.emplace(slot);
    slot->active = true;
    slot->owners = std::move(owners);
    slot->receives = 0;
    slot->pieces.clear();  // keeps its capacity, so a step allocates nothing
    return *slot;
  }
  /// Sends a ConstBuffer or receives a MutableBuffer. MPI matches the messages of two ranks in
  /// their order.
  template <typename Buffer>
  [[nodiscard]] Request start_message(const Buffer& buffer, int peer) {
    require_peer(peer);
    const std::lock_guard lock(mpi_mutex());
    if (buffer.count == 0) return {};
    Slot& slot = take_slot({buffer.owner});
    slot.type = datatype(buffer.type);
    const MpiBlock block(buffer.count, buffer.type, largest_piece_);
    if constexpr (std::is_same_v<Buffer, MutableBuffer>) {
      slot.receives = buffer.count;
      check(MPI_Irecv(buffer.data, block.count(), block.type(), peer, message_tag, group_->get(),
                      slot.next()),
            "MPI_Irecv");
    } else {
      check(MPI_Isend(buffer.data, block.count(), block.type(), peer, message_tag, group_->get(),
                      slot.next()),
            "MPI_Isend");
    }
    return request_of(slot);
  }
  /// MPI itself refuses only a message that is longer than its receive.
  void require_whole(const Slot& slot, const MPI_Status& status) const {
    MPI_Count count = 0;
    check(MPI_Get_elements_x(&status, slot.type, &count), "MPI_Get_elements_x");
    if (count == static_cast<MPI_Count>(slot.receives)) return;
    fail(ExitStatus::internal,
         "a message from rank {} to rank {} of {} has {} values instead of {} (the ranks made "
         "different calls); look at what chose the counts",
         status.MPI_SOURCE, rank(), size(), static_cast<std::int64_t>(count), slot.receives);
  }
  [[nodiscard]] Request request_of(const Slot& slot) const noexcept {
    return {.slot = static_cast<int>(&slot - slots_.data())};
  }
  void release(Request& request) noexcept {
    Slot& slot = slots_[static_cast<std::size_t>(request.slot)];
    slot.active = false;
    slot.owners = {};
    request.slot = -1;
  }

  /// Calls `visit(offset, count)` for pieces of [0, count).
  template <typename Visitor>
  void in_pieces(std::size_t count, Visitor&& visit) const {
    for (std::size_t offset = 0; offset < count; offset += largest_piece_) {
      visit(offset, static_cast<int>(std::min(largest_piece_, count - offset)));
    }
  }

  /// Predefined operators accept no derived datatypes, so each block is reduced to its rank in
  /// pieces: `visit(root, from, to, count)`.
  template <typename Visitor>
  void in_pieces_by_root(ConstBuffer all, MutableBuffer mine, Visitor&& visit) const {
    const auto* const values = static_cast<const std::byte*>(all.data);
    for (int root = 0; root < size(); ++root) {
      const std::size_t block = static_cast<std::size_t>(root) * mine.count;
      in_pieces(mine.count, [&](std::size_t offset, int count) {
        visit(root, values + (block + offset) * size_of(all.type), at(mine, offset), count);
      });
    }
  }

  /// Send buffer of an all-gather: MPI requires MPI_IN_PLACE if `mine` is already in `all`.
  [[nodiscard]] const void* sent(ConstBuffer mine, MutableBuffer all) const noexcept {
    const std::size_t own = static_cast<std::size_t>(rank()) * mine.count;
    return mine.data == at(all, own) ? MPI_IN_PLACE : mine.data;
  }

  static void* at(MutableBuffer buffer, std::size_t offset) noexcept {
    return static_cast<std::byte*>(buffer.data) + offset * size_of(buffer.type);
  }

  void check(int code, const char* call) const { group_->check(code, call); }

  ExchangeProgress& progress_ = ExchangeProgress::of_process();
  std::size_t largest_piece_;
  std::unique_ptr<MpiGroup> group_;
  Operators16<Bfloat16> bf16_;
  Operators16<Float16> f16_;
  std::vector<Slot> slots_ = std::vector<Slot>(64);
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MpiCommunicatorOptions options) {
  return std::make_unique<MpiCommunicator>(std::make_unique<MpiGroup>(), options.largest_piece);
}

std::unique_ptr<MpiGroup> mpi_group_of(std::unique_ptr<Communicator> comm) {
  return dynamic_cast<MpiCommunicator&>(*comm).take_group();
}

}  // namespace lockstep
