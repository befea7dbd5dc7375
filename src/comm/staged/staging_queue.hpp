#pragma once

#include "../cuda_calls.hpp"
#include "../slot_pool.hpp"
#include "lockstep/comm/collective.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/device_progress.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace lockstep {

/// In-flight collectives and messages on device memory that are staged through the host. They
/// progress in advance(). They begin on the host's communicator strictly in the order in which they
/// were started, which is the same on all ranks, however long each copy takes.
class StagingQueue final {
 public:
  /// All of them must outlive it; `progress` may be null.
  StagingQueue(const CudaCalls& cuda, Communicator& host, CudaStream compute,
               DeviceProgress* progress)
      : cuda_(cuda),
        progress_(progress),
        host_(host),
        compute_(compute),
        outward_(cuda.make_stream()),
        homeward_(cuda.make_stream()) {}

  StagingQueue(const StagingQueue&) = delete;
  StagingQueue& operator=(const StagingQueue&) = delete;

  struct Work {
    CollectiveKind kind = CollectiveKind::none;  ///< a nonblocking kind
    ConstBuffer from{};                          ///< same as `to` for an all-reduce
    MutableBuffer to{};
    ReduceOp op = ReduceOp::sum;
    int peer = 0;  ///< of a message, which has one of the buffers only
  };
  /// Returns the number of a transfer, valid until release().
  [[nodiscard]] std::size_t start(const Work& work);
  /// Never blocks.
  void advance();
  /// Whether all started collectives have begun on the host's communicator.
  [[nodiscard]] bool all_have_begun() const noexcept { return next_ == order_.size(); }
  [[nodiscard]] CollectiveKind kind(std::size_t transfer) noexcept {
    return transfers_[transfer].work.kind;
  }
  /// Whether the copy back to the device has been queued.
  [[nodiscard]] bool is_returning(std::size_t transfer) noexcept {
    return transfers_[transfer].state == State::returning;
  }
  /// Whether the result is in device memory.
  [[nodiscard]] bool is_back(std::size_t transfer) {
    return is_returning(transfer) && cuda_.is_done(transfers_[transfer].returned);
  }
  /// Orders later work in the compute stream after the result. Requires is_returning().
  void order_compute_after(std::size_t transfer) {
    cuda_.order_after(compute_, transfers_[transfer].returned);
  }
  /// Requires is_back() or order_compute_after(), so that its memory can be reused safely.
  void release(std::size_t transfer);

 private:
  enum class State { leaving, on_host, returning };
  struct Transfer {
    std::shared_ptr<void> memory;  ///< pinned
    std::size_t capacity = 0;
    EventHandle ready;     ///< `work.from` has been computed
    EventHandle arrived;   ///< its copy is in `memory`
    EventHandle returned;  ///< the result is in `work.to`
    State state = State::leaving;
    Work work{};
    Request request;
  };
  /// Layout of the copies in pinned memory.
  struct Staged {
    std::size_t from;  ///< offset in bytes
    std::size_t to;
    std::size_t bytes;  ///< total size
  };
  [[nodiscard]] Staged layout_of(const Work& work) const noexcept;
  /// Ranks have different numbers of messages, so these are not compared.
  [[nodiscard]] bool counts(const Transfer& transfer) const noexcept {
    return progress_ != nullptr && !is_message(transfer.work.kind);
  }
  [[nodiscard]] Request start_on_host(const Transfer& transfer);

  const CudaCalls& cuda_;
  DeviceProgress* progress_;
  Communicator& host_;
  CudaStream compute_;
  /// Two streams, so that a result does not wait behind a copy of values still being computed.
  StreamHandle outward_;
  StreamHandle homeward_;
  SlotPool<Transfer> transfers_;
  std::vector<std::size_t> order_;  ///< transfers in flight, in the order of their starts
  std::size_t next_ = 0;            ///< of order_: the first that has not begun on the host
};

}  // namespace lockstep
