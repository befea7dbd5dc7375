#pragma once

#include "../backoff.hpp"
#include "lockstep/comm/nccl_communicator.hpp"

#include <chrono>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// One nonblocking NCCL communicator. A failure fails all communicators of the same NcclLinks.
class NcclLink final {
 public:
  /// Does not connect yet. `ranks`: job ranks, including this one. `limit_advice`: end of the
  /// message about a start above the limit.
  NcclLink(NcclApi& api, const Rendezvous& rendezvous, std::vector<int> ranks,
           std::string limit_advice);
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  /// Aborts unless it has ended.
  ~NcclLink() { abort(); }

  [[nodiscard]] NcclComm get() const noexcept { return comm_; }
  /// Job ranks.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }
  /// This rank's place among them.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  /// "rank 3 (node7)"
  [[nodiscard]] const std::string& who() const noexcept { return who_; }
  /// "another rank", or "another of rank 2 (node7), rank 3 (node7)"
  [[nodiscard]] const std::string& another() const noexcept { return another_; }

  /// Collective over its ranks. Several ids need comm_init_rank_scalable.
  [[nodiscard]] Rendezvous::Outcome connect(std::span<const NcclUniqueId> ids, int max_ctas,
                                            Backoff& backoff);
  /// Replaces connect(): splits `all`, whose ranks each take part in one such link. Collective over
  /// the ranks of `all`.
  [[nodiscard]] Rendezvous::Outcome split(NcclLink& all, int max_ctas, Backoff& backoff);
  /// The asynchronous error state of the communicator.
  [[nodiscard]] NcclResult state();
  /// Waits for a call that returned `result`, and until `is_done`, which is asked whenever NCCL is
  /// not in an error: success, an error, or after the limit in_progress. A call may return success
  /// before it is complete.
  [[nodiscard]] NcclResult complete(
      NcclResult result, Backoff& backoff, FunctionRef<bool()> is_done = [] { return true; });
  /// What complete() returned, as the outcome of a start.
  [[nodiscard]] Rendezvous::Outcome outcome(NcclResult result, const char* call,
                                            const Backoff& backoff) const;
  [[nodiscard]] std::string failure(NcclResult result, const char* call) const;
  /// Keeps the memory until the communicator ends; follow with one of the two functions below.
  void keep(const RegisteredMemory& memory);
  /// Registers the memory of the last keep() as a symmetric window; collective; needs settle().
  /// Then has_window() is false if NCCL does not support such windows.
  [[nodiscard]] NcclResult register_window();
  [[nodiscard]] bool has_window() const noexcept { return kept_.back().window != nullptr; }
  /// Deregisters that window, if there is one; needs settle().
  [[nodiscard]] NcclResult drop_window();
  /// Registers it with this rank's NCCL only; needs settle().
  [[nodiscard]] NcclResult register_memory();
  /// Finalizes and destroys the communicator; false if it does not finish within the limit.
  [[nodiscard]] bool end(std::chrono::milliseconds limit) noexcept;
  void abort() noexcept;

 private:
  struct Kept {
    RegisteredMemory memory;
    NcclWindow window = nullptr;
    void* handle = nullptr;
  };

  NcclApi& api_;
  std::vector<int> ranks_;
  int rank_;
  std::string who_;
  std::string another_;
  std::string advice_;
  NcclComm comm_ = nullptr;
  std::deque<Kept> kept_;  ///< stable addresses, since NCCL may write the handles later
};

}  // namespace lockstep
