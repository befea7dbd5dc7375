#pragma once

#include "../backoff.hpp"
#include "lockstep/comm/nccl_communicator.hpp"

#include <chrono>
#include <deque>
#include <string>
#include <vector>

namespace lockstep {

/// One communicator of NCCL that does not block. What fails it fails all of its NcclLinks.
class NcclLink final {
 public:
  /// Not connected yet; `ranks` of the job, this one among them.
  NcclLink(NcclApi& api, const Rendezvous& rendezvous, std::vector<int> ranks);
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  /// Aborts what has not ended.
  ~NcclLink() { abort(); }

  [[nodiscard]] NcclComm get() const noexcept { return comm_; }
  /// In the job.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }
  /// This rank's place among them.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  /// "rank 3 (node7)"
  [[nodiscard]] const std::string& who() const noexcept { return who_; }
  /// "another rank", or "another of rank 2 (node7), rank 3 (node7)"
  [[nodiscard]] const std::string& another() const noexcept { return another_; }

  /// Collective over its ranks.
  [[nodiscard]] Rendezvous::Outcome connect(const NcclUniqueId& id, int max_ctas, Backoff& backoff);
  /// What NCCL has found since.
  [[nodiscard]] NcclResult state();
  [[nodiscard]] std::string failure(NcclResult result, const char* call) const;
  /// Keeps the memory until the communicator has ended; one of the two below is to follow.
  void keep(const RegisteredMemory& memory);
  /// Makes the memory that was kept last known to all ranks; to be settled. Where NCCL has no such
  /// windows, has_window() is false then.
  [[nodiscard]] NcclResult register_window();
  [[nodiscard]] bool has_window() const noexcept { return kept_.back().window != nullptr; }
  /// To this rank's NCCL alone; to be settled.
  [[nodiscard]] NcclResult register_memory();
  /// Finishes what is queued and destroys; false where the others do not end too.
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
  NcclComm comm_ = nullptr;
  std::deque<Kept> kept_;  ///< NCCL writes the handles when it pleases: they stay put
};

}  // namespace lockstep
