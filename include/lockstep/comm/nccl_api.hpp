#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/cuda_api.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

/// The values equal NCCL's; nccl_api.cpp, which includes nccl.h, asserts this.
enum class NcclResult : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};
using NcclComm = void*;    ///< an ncclComm_t
using NcclWindow = void*;  ///< an ncclWindow_t
using NcclUniqueId = std::array<char, 128>;

/// The fields of ncclConfig_t in use.
struct NcclConfig {
  bool blocking = false;
  int max_ctas = 0;  ///< 0: NCCL's choice
};

/// The NCCL calls that communication needs, with the semantics that NCCL documents for the name
/// with prefix "nccl". On a nonblocking communicator a call may return in_progress. Until
/// comm_get_async_error reports success, make no other call and do not read the call's outputs.
class NcclApi : public CudaApi {
 public:
  /// 22809 for 2.28.9.
  [[nodiscard]] virtual int version() const = 0;
  [[nodiscard]] virtual NcclResult get_unique_id(NcclUniqueId* id) = 0;
  [[nodiscard]] virtual NcclResult comm_init_rank_config(NcclComm* comm, int ranks,
                                                         const NcclUniqueId& id, int rank,
                                                         const NcclConfig& config) = 0;
  /// Whether this NCCL has comm_init_rank_scalable (2.23 and newer).
  [[nodiscard]] virtual bool has_scalable_init() const noexcept = 0;
  /// As comm_init_rank_config with several ids, equal on all ranks. NCCL connects the ranks of the
  /// k-th of `ids.size()` blocks through the k-th id.
  [[nodiscard]] virtual NcclResult comm_init_rank_scalable(NcclComm* comm, int ranks, int rank,
                                                           std::span<const NcclUniqueId> ids,
                                                           const NcclConfig& config) = 0;
  /// Collective over `parent`: ranks with the same color form a communicator, in the order of
  /// their keys. NCCL writes `made` before the state of `parent` becomes success.
  [[nodiscard]] virtual NcclResult comm_split(NcclComm parent, int color, int key, NcclComm* made,
                                              const NcclConfig& config) = 0;
  [[nodiscard]] virtual NcclResult comm_get_async_error(NcclComm comm, NcclResult* state) = 0;
  [[nodiscard]] virtual NcclResult comm_finalize(NcclComm comm) = 0;
  virtual NcclResult comm_destroy(NcclComm comm) noexcept = 0;
  /// Never returns in_progress. May wait for collectives of the device's other communicators,
  /// unless one group aborts them all; then group_end frees them.
  virtual NcclResult comm_abort(NcclComm comm) noexcept = 0;

  /// Allocates memory that is suitable for symmetric windows.
  [[nodiscard]] virtual NcclResult mem_alloc(void** memory, std::size_t bytes) = 0;
  virtual NcclResult mem_free(void* memory) noexcept = 0;
  [[nodiscard]] virtual NcclResult comm_register(NcclComm comm, void* memory, std::size_t bytes,
                                                 void** handle) = 0;
  virtual NcclResult comm_deregister(NcclComm comm, void* handle) noexcept = 0;
  /// Collective; with NCCL_WIN_COLL_SYMMETRIC. The window is null if NCCL (before 2.27) or the
  /// platform does not support it.
  [[nodiscard]] virtual NcclResult comm_window_register(NcclComm comm, void* memory,
                                                        std::size_t bytes, NcclWindow* window) = 0;
  virtual NcclResult comm_window_deregister(NcclComm comm, NcclWindow window) noexcept = 0;

  [[nodiscard]] virtual NcclResult all_reduce(const void* from, void* to, std::size_t count,
                                              ElementType type, ReduceOp op, NcclComm comm,
                                              CudaStream stream) = 0;
  [[nodiscard]] virtual NcclResult reduce_scatter(const void* from, void* to,
                                                  std::size_t received_count, ElementType type,
                                                  ReduceOp op, NcclComm comm,
                                                  CudaStream stream) = 0;
  [[nodiscard]] virtual NcclResult all_gather(const void* from, void* to, std::size_t sent_count,
                                              ElementType type, NcclComm comm,
                                              CudaStream stream) = 0;
  [[nodiscard]] virtual NcclResult broadcast(const void* from, void* to, std::size_t count,
                                             ElementType type, int root, NcclComm comm,
                                             CudaStream stream) = 0;
  [[nodiscard]] virtual NcclResult send(const void* from, std::size_t count, ElementType type,
                                        int peer, NcclComm comm, CudaStream stream) = 0;
  [[nodiscard]] virtual NcclResult recv(void* to, std::size_t count, ElementType type, int peer,
                                        NcclComm comm, CudaStream stream) = 0;
  [[nodiscard]] virtual NcclResult group_start() = 0;
  [[nodiscard]] virtual NcclResult group_end() = 0;

  using CudaApi::error_string;
  [[nodiscard]] virtual std::string error_string(NcclResult result) const = 0;
  /// NCCL's message for the last failure in this process; may be empty.
  [[nodiscard]] virtual std::string last_error(NcclComm comm) const = 0;
};

/// Finds a function of NCCL's library by name; null: this NCCL is too old to have it.
using NcclSymbol = void* (*)(const char* name);
[[nodiscard]] void* find_nccl_symbol(const char* name) noexcept;
/// Calls the real libraries. `find` is asked for functions that the oldest supported NCCL lacks.
/// Defined in lockstep_nccl_api, which is absent from builds without CUDA.
[[nodiscard]] std::unique_ptr<NcclApi> make_nccl_api(NcclSymbol find = find_nccl_symbol);

}  // namespace lockstep
