#pragma once

#include "../cuda_calls.hpp"
#include "../slot_pool.hpp"
#include "lockstep/comm/collective.hpp"
#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <vector>

namespace lockstep {

/// Collectives over device memory on their way through the host. They move on when advance() is
/// called, and reach the host's communicator strictly in the order of their starts, which is the
/// same on all ranks, however quick the copies of each are.
class StagingQueue final {
 public:
  /// All of them outlive it.
  StagingQueue(const CudaCalls& cuda, Communicator& host, CudaStream compute)
      : cuda_(cuda),
        host_(host),
        compute_(compute),
        outward_(cuda.make_stream()),
        homeward_(cuda.make_stream()) {}

  StagingQueue(const StagingQueue&) = delete;
  StagingQueue& operator=(const StagingQueue&) = delete;
  ~StagingQueue();

  struct Work {
    CollectiveKind kind;  ///< a started one
    ConstBuffer from;     ///< as `to` for an all-reduce
    MutableBuffer to;
    ReduceOp op = ReduceOp::sum;
  };
  /// The number of a transfer, which release() ends.
  [[nodiscard]] std::size_t start(const Work& work);
  /// Never waits.
  void advance();
  /// The host's communicator has been told of all that was started.
  [[nodiscard]] bool all_have_begun() const noexcept { return next_ == order_.size(); }
  [[nodiscard]] CollectiveKind kind(std::size_t transfer) noexcept {
    return transfers_[transfer].work.kind;
  }
  /// The copy back has been queued.
  [[nodiscard]] bool is_returning(std::size_t transfer) noexcept {
    return transfers_[transfer].stage == Stage::returning;
  }
  /// The result is there.
  [[nodiscard]] bool is_back(std::size_t transfer) {
    return is_returning(transfer) && cuda_.is_done(transfers_[transfer].returned);
  }
  /// What is queued in the compute stream from now on has the result; after is_returning().
  void order_compute_after(std::size_t transfer) {
    cuda_.order_after(compute_, transfers_[transfer].returned);
  }
  /// After is_back() or order_compute_after(): the next use of its memory comes later.
  void release(std::size_t transfer);

 private:
  enum class Stage { leaving, on_host, returning };
  struct Transfer {
    PinnedMemory memory;
    std::size_t capacity = 0;
    EventHandle ready;     ///< `work.from` has been computed
    EventHandle arrived;   ///< its copy is in `memory`
    EventHandle returned;  ///< the result is in `work.to`
    Stage stage = Stage::leaving;
    Work work{};
    Request request;
  };
  /// The copies in pinned memory.
  struct Staged {
    std::size_t from;  ///< where it lies there
    std::size_t to;
    std::size_t bytes;  ///< of both
  };
  [[nodiscard]] Staged layout_of(const Work& work) const noexcept;
  [[nodiscard]] Request start_on_host(const Transfer& transfer);

  const CudaCalls& cuda_;
  Communicator& host_;
  CudaStream compute_;
  /// Two, so that a result need not wait behind a copy whose values are still being computed.
  StreamHandle outward_;
  StreamHandle homeward_;
  SlotPool<Transfer> transfers_;
  std::vector<std::size_t> order_;  ///< those under way, as they were started
  std::size_t next_ = 0;            ///< of order_: the first that has not begun on the host
};

}  // namespace lockstep
