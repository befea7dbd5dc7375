#pragma once

#include "../cuda_calls.hpp"
#include "lockstep/core/error.hpp"
#include "nccl_link.hpp"

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace lockstep {

/// All communicators of NCCL of a rank's device. They start at one rendezvous of the job and fail
/// together: after a failure all must be aborted before the Error leaves the rank's communicator;
/// then the peers' kernels end too, or find out.
///
/// Their kernels are queued in one stream. A kernel of NCCL holds its multiprocessors until its
/// peers' run as well; were a device to run one communicator's first and its peer the other's, each
/// would wait for room, for ever. All ranks queue the collectives of all communicators in the same
/// order, so of those that have not ended the foremost is next on each of its devices: it runs.
class NcclLinks final {
 public:
  /// One for each of `sets`, in this order; not connected yet.
  NcclLinks(NcclApi& api, const Rendezvous& rendezvous, std::span<const std::vector<int>> sets,
            const NcclCommunicatorOptions& options);
  NcclLinks(const NcclLinks&) = delete;
  NcclLinks& operator=(const NcclLinks&) = delete;
  ~NcclLinks() = default;

  /// Collective; see make_nccl_communicators.
  void start(Rendezvous& rendezvous, const NcclCommunicatorOptions& options);
  /// In place of the start, on a rank that cannot go on: tells the others, and throws as they do.
  static void report(Rendezvous& rendezvous, const NcclCommunicatorOptions& options,
                     const Error& error);

  [[nodiscard]] NcclLink& operator[](std::size_t which) { return links_[which]; }
  [[nodiscard]] const CudaCalls& cuda() const noexcept { return cuda_; }
  [[nodiscard]] CudaStream stream() const noexcept { return stream_.get(); }
  [[nodiscard]] bool is_aborted() const noexcept { return aborted_; }
  /// Of communicators that had started.
  [[nodiscard]] bool is_aborted_amid_work() const noexcept { return aborted_ && started_; }

  /// After a call that gave `result`: until it has really been made.
  void settle(NcclLink& link, NcclResult result, const char* call);
  /// Throws what NCCL has found since, in any of them.
  void check();
  /// Ends one. Aborts all where that fails, or an exception passes.
  void end(NcclLink& link) noexcept;
  /// All of them, together.
  void abort() noexcept;

 private:
  void connect(Rendezvous& rendezvous, const NcclCommunicatorOptions& options);

  NcclApi& api_;
  CudaCalls cuda_;
  std::chrono::milliseconds wait_limit_;
  int exceptions_;
  bool started_ = false;
  bool aborted_ = false;
  StreamHandle stream_;
  std::deque<NcclLink> links_;  ///< they end first, while their stream is there
};

}  // namespace lockstep
