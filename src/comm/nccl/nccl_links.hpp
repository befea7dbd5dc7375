#pragma once

#include "../cuda_calls.hpp"
#include "collective_marks.hpp"
#include "lockstep/core/error.hpp"
#include "nccl_link.hpp"

#include <cstddef>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// All NCCL communicators of a rank's device. They start in one rendezvous of the job and fail
/// together: after a failure, all must be aborted before the Error leaves the communicator, so that
/// the peers' kernels end or report an error too.
///
/// Their kernels are queued in one stream. An NCCL kernel holds its multiprocessors until its
/// peers' kernels run. If two devices ran kernels of two communicators in opposite order, each
/// could wait forever for multiprocessors. All ranks queue the collectives of all communicators in
/// the same order, so the first unfinished one is next on each of its devices and runs.
class NcclLinks final {
 public:
  /// Makes one link per set, in the same order; does not connect yet.
  NcclLinks(NcclApi& api, const Rendezvous& rendezvous, std::span<const std::vector<int>> sets,
            const NcclCommunicatorOptions& options);
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;
  ~NcclLinks();

  /// Collective; see make_nccl_communicators. After an error, end() aborts the links.
  void start(Rendezvous& rendezvous);
  /// Replaces start() on a rank that has failed: reports the error to all ranks, and all throw.
  static void report(Rendezvous& rendezvous, const NcclCommunicatorOptions& options,
                     const Error& error);

  [[nodiscard]] NcclLink& operator[](std::size_t which) { return links_[which]; }
  [[nodiscard]] const NcclCommunicatorOptions& options() const noexcept { return options_; }
  [[nodiscard]] const CudaCalls& cuda() const noexcept { return cuda_; }
  [[nodiscard]] CudaStream stream() const noexcept { return stream_.get(); }
  /// A byte of device memory that any collective may overwrite.
  [[nodiscard]] void* token() const noexcept { return token_; }
  [[nodiscard]] CollectiveMarks& marks() noexcept { return marks_; }
  [[nodiscard]] bool is_aborted() const noexcept { return aborted_; }
  /// Whether the communicators were aborted after they had started.
  [[nodiscard]] bool is_aborted_amid_work() const noexcept { return aborted_ && started_; }

  /// Makes and starts a link over a part of the ranks of `parent`, in the order of the part, a
  /// permutation of job ranks. Collective over the ranks of `parent`, which has no work in flight.
  [[nodiscard]] NcclLink& split(NcclLink& parent, std::vector<int> part);

  /// Events around a collective or message that compute() orders.
  struct Events {
    EventHandle ready;     ///< the buffer has been computed
    EventHandle finished;  ///< the collective is done
  };
  struct Message {
    NcclLink* link;
    bool sends;
    void* data;
    std::size_t count;
    ElementType type;
    int peer;
    const Events* events;
  };
  /// Adds a message to those that flush() queues as a group. In a group, messages in both
  /// directions run at once; one by one in a stream, two ranks that send to each other would wait
  /// forever.
  void add(const Message& message) { messages_.push_back(message); }
  /// Call before anything else is queued or awaited.
  void flush();

  /// Blocks until a call that returned `result` is complete; throws if it fails.
  void settle(NcclLink& link, NcclResult result, const char* call);
  /// Throws if any communicator has an asynchronous error.
  void check();
  /// Ends one communicator. Aborts all if that fails or during stack unwinding.
  void end(NcclLink& link) noexcept;
  /// Aborts all of them in one group.
  void abort() noexcept;

 private:
  /// Runs the first collectives of a link with this outcome so far; NCCL connects the ranks in
  /// them.
  [[nodiscard]] Rendezvous::Outcome run_first(NcclLink& link, Rendezvous::Outcome outcome,
                                              Backoff& backoff);

  NcclApi& api_;
  const Rendezvous& rendezvous_;
  CudaCalls cuda_;
  NcclCommunicatorOptions options_;
  int exceptions_;
  bool started_ = false;
  bool aborted_ = false;
  std::string advice_;  ///< end of messages about a start above the limit
  StreamHandle stream_;
  CollectiveMarks marks_;
  void* token_ = nullptr;          ///< a byte for each rank
  std::vector<Message> messages_;  ///< started and not queued yet
  std::deque<NcclLink> links_;     ///< declared last, so destroyed before the stream
};

}  // namespace lockstep
