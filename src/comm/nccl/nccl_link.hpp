#pragma once

#include "../patience.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/error.hpp"

#include <cstddef>
#include <deque>
#include <string>

namespace lockstep {

/// A NCCL communicator that does not block, from start to end. After a failure it must be aborted
/// before the Error leaves the rank's communicator; then the peers' kernels end too, or find out.
class NcclLink final {
 public:
  /// Collective; see make_nccl_communicator.
  NcclLink(NcclApi& api, RollCall& roll_call, const NcclCommunicatorOptions& options);
  /// In place of the start, on a rank that cannot go on: tells the others, and throws as they do.
  static void report(RollCall& roll_call, const NcclCommunicatorOptions& options,
                     const Error& error);
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  /// Finishes what is queued and destroys; aborts where that fails, or an exception passes.
  ~NcclLink();

  [[nodiscard]] NcclComm get() const noexcept { return comm_; }
  [[nodiscard]] bool is_aborted() const noexcept { return comm_ == nullptr; }

  /// After a call of NCCL that gave `result`: until it has really been made.
  void settle(NcclResult result, const char* call);
  /// Throws what NCCL has found since.
  void check();
  void register_buffer(void* memory, std::size_t bytes, DeviceCommunicator::Registration how);
  void abort() noexcept;

 private:
  struct Registered {
    DeviceCommunicator::Registration how;
    void* handle;
  };
  void start(RollCall& roll_call, const NcclCommunicatorOptions& options);
  [[nodiscard]] RollCall::Outcome connect(RollCall& roll_call, const NcclUniqueId& id, int max_ctas,
                                          Patience& patience);
  [[nodiscard]] std::string failure(NcclResult result, const char* call) const;
  [[nodiscard]] NcclResult state();
  [[nodiscard]] bool is_finalized() noexcept;

  NcclApi& api_;
  std::string who_;
  std::chrono::milliseconds wait_limit_;
  int exceptions_;
  NcclComm comm_ = nullptr;
  std::deque<Registered> registered_;  ///< NCCL writes the handles when it pleases: they stay put
};

}  // namespace lockstep
