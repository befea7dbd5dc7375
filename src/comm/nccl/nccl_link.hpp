#pragma once

#include "../patience.hpp"
#include "lockstep/comm/nccl_communicator.hpp"

#include <chrono>
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

namespace lockstep {

/// One communicator of NCCL that does not block. What fails it fails all of its NcclLinks.
class NcclLink final {
 public:
  /// Not connected yet; `ranks` of the job, this one among them.
  NcclLink(NcclApi& api, const RollCall& roll_call, std::vector<int> ranks);
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
  [[nodiscard]] RollCall::Outcome connect(const NcclUniqueId& id, int max_ctas, Patience& patience);
  /// What NCCL has found since.
  [[nodiscard]] NcclResult state();
  [[nodiscard]] std::string failure(NcclResult result, const char* call) const;
  /// To be settled; forgotten again in end().
  [[nodiscard]] NcclResult register_buffer(void* memory, std::size_t bytes,
                                           DeviceCommunicator::Registration how);
  /// Finishes what is queued and destroys; false where the others do not end too.
  [[nodiscard]] bool end(std::chrono::milliseconds limit) noexcept;
  void abort() noexcept;

 private:
  struct Registered {
    DeviceCommunicator::Registration how;
    void* handle;
  };

  NcclApi& api_;
  std::vector<int> ranks_;
  int rank_;
  std::string who_;
  std::string another_;
  NcclComm comm_ = nullptr;
  std::deque<Registered> registered_;  ///< NCCL writes the handles when it pleases: they stay put
};

}  // namespace lockstep
