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

  /// Blocks until a call that returned `result` is complete; throws if it fails.
  void settle(NcclLink& link, NcclResult result, const char* call);
  /// Throws if any communicator has an asynchronous error.
  void check();
  /// Ends one communicator. Aborts all if that fails or during stack unwinding.
  void end(NcclLink& link) noexcept;
  /// Aborts all of them in one group.
  void abort() noexcept;

 private:
  /// Starts a link and runs its first collectives, in which NCCL connects the ranks.
  [[nodiscard]] Rendezvous::Outcome start_link(NcclLink& link, std::span<const NcclUniqueId> ids,
                                               Backoff& backoff);

  NcclApi& api_;
  CudaCalls cuda_;
  NcclCommunicatorOptions options_;
  int exceptions_;
  bool started_ = false;
  bool aborted_ = false;
  std::string advice_;  ///< end of messages about a start above the limit
  StreamHandle stream_;
  CollectiveMarks marks_;
  void* token_ = nullptr;       ///< a byte for each rank
  std::deque<NcclLink> links_;  ///< declared last, so destroyed before the stream
};

}  // namespace lockstep
