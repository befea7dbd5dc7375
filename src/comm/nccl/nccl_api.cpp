#include "lockstep/comm/nccl_api.hpp"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstring>
#include <vector>

namespace lockstep {
namespace {

static_assert(static_cast<int>(CudaResult::success) == cudaSuccess);
static_assert(static_cast<int>(CudaResult::not_ready) == cudaErrorNotReady);
static_assert(static_cast<int>(NcclResult::success) == ncclSuccess);
static_assert(static_cast<int>(NcclResult::unhandled_cuda_error) == ncclUnhandledCudaError);
static_assert(static_cast<int>(NcclResult::system_error) == ncclSystemError);
static_assert(static_cast<int>(NcclResult::internal_error) == ncclInternalError);
static_assert(static_cast<int>(NcclResult::invalid_argument) == ncclInvalidArgument);
static_assert(static_cast<int>(NcclResult::invalid_usage) == ncclInvalidUsage);
static_assert(static_cast<int>(NcclResult::remote_error) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::in_progress) == ncclInProgress);
static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));

CudaResult result(cudaError_t code) noexcept {
  // Clears a returned error, so that the next cudaGetLastError does not report it again.
  if (code != cudaSuccess) static_cast<void>(cudaGetLastError());
  return static_cast<CudaResult>(code);
}
NcclResult result(ncclResult_t code) noexcept {
  return static_cast<NcclResult>(code);
}
cudaStream_t as_stream(CudaStream stream) noexcept {
  return static_cast<cudaStream_t>(stream);
}
cudaEvent_t as_event(CudaEvent event) noexcept {
  return static_cast<cudaEvent_t>(event);
}
ncclComm_t as_comm(NcclComm comm) noexcept {
  return static_cast<ncclComm_t>(comm);
}
ncclDataType_t as_type(ElementType type) noexcept {
  switch (type) {
    case ElementType::f32:
      return ncclFloat32;
    case ElementType::f64:
      return ncclFloat64;
    case ElementType::i32:
      return ncclInt32;
    case ElementType::i64:
      return ncclInt64;
    case ElementType::u8:
      return ncclUint8;
    case ElementType::u64:
      return ncclUint64;
    case ElementType::bf16:
      return ncclBfloat16;
    case ElementType::f16:
      return ncclFloat16;
  }
  return ncclUint8;
}
ncclRedOp_t as_op(ReduceOp op) noexcept {
  return op == ReduceOp::sum ? ncclSum : op == ReduceOp::min ? ncclMin : ncclMax;
}

ncclUniqueId as_id(const NcclUniqueId& id) noexcept {
  ncclUniqueId made;
  std::memcpy(made.internal, id.data(), id.size());
  return made;
}

/// Functions that older versions lack, so the module must load without them; null: lacking.
struct NewerFunctions {
  explicit NewerFunctions(NcclSymbol find) {
    assign(find, "ncclCommInitRankScalable", init_rank_scalable);  // 2.23
    assign(find, "ncclCommWindowRegister", window_register);       // 2.27
    assign(find, "ncclCommWindowDeregister", window_deregister);   // 2.27
  }

  ncclResult_t (*init_rank_scalable)(ncclComm_t* comm, int ranks, int rank, int id_count,
                                     ncclUniqueId* ids, ncclConfig_t* config) = nullptr;
  ncclResult_t (*window_register)(ncclComm_t comm, void* memory, std::size_t bytes,
                                  NcclWindow* window, int flags) = nullptr;
  ncclResult_t (*window_deregister)(ncclComm_t comm, NcclWindow window) = nullptr;

 private:
  template <typename Function>
  static void assign(NcclSymbol find, const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(find(name));
  }
};

constexpr int symmetric_window = 1;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static_assert(symmetric_window == NCCL_WIN_COLL_SYMMETRIC);
#endif

ncclConfig_t settings_of(const NcclConfig& config) noexcept {
  ncclConfig_t settings = NCCL_CONFIG_INITIALIZER;
  settings.blocking = config.blocking ? 1 : 0;
  if (config.max_ctas > 0) settings.maxCTAs = config.max_ctas;
  return settings;
}

/// Passes the caller's handle addresses through, since NCCL may write after the call has returned.
class LibraryApi final : public NcclApi {
 public:
  explicit LibraryApi(NcclSymbol find) : newer_(find) {}

  CudaResult stream_create(CudaStream* stream) override {
    int least = 0;
    int greatest = 0;
    if (const auto code = cudaDeviceGetStreamPriorityRange(&least, &greatest); code != cudaSuccess)
      return result(code);
    return result(cudaStreamCreateWithPriority(reinterpret_cast<cudaStream_t*>(stream),
                                               cudaStreamNonBlocking, greatest));
  }
  void stream_destroy(CudaStream stream) noexcept override {
    static_cast<void>(result(cudaStreamDestroy(as_stream(stream))));
  }
  CudaResult stream_query(CudaStream stream) override {
    return result(cudaStreamQuery(as_stream(stream)));
  }
  CudaResult stream_is_capturing(CudaStream stream, bool* capturing) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const auto code = cudaStreamIsCapturing(as_stream(stream), &status);
    *capturing = status != cudaStreamCaptureStatusNone;
    return result(code);
  }
  CudaResult stream_wait_event(CudaStream stream, CudaEvent event) override {
    return result(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0));
  }
  CudaResult event_create(CudaEvent* event) override {
    return result(
        cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(event), cudaEventDisableTiming));
  }
  void event_destroy(CudaEvent event) noexcept override {
    static_cast<void>(result(cudaEventDestroy(as_event(event))));
  }
  CudaResult event_record(CudaEvent event, CudaStream stream) override {
    return result(cudaEventRecord(as_event(event), as_stream(stream)));
  }
  CudaResult event_query(CudaEvent event) override {
    return result(cudaEventQuery(as_event(event)));
  }
  CudaResult device_allocate(void** memory, std::size_t bytes) override {
    return result(cudaMalloc(memory, bytes));
  }
  void device_release(void* memory) noexcept override {
    static_cast<void>(result(cudaFree(memory)));
  }
  CudaResult host_allocate(void** memory, std::size_t bytes) override {
    return result(cudaHostAlloc(memory, bytes, cudaHostAllocDefault));
  }
  void host_release(void* memory) noexcept override {
    static_cast<void>(result(cudaFreeHost(memory)));
  }
  CudaResult copy_to_host(void* to, const void* from, std::size_t bytes,
                          CudaStream stream) override {
    return result(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, as_stream(stream)));
  }
  CudaResult copy_to_device(void* to, const void* from, std::size_t bytes,
                            CudaStream stream) override {
    return result(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, as_stream(stream)));
  }
  std::string error_string(CudaResult code) const override {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
  }

  int version() const override {
    int found = 0;
    static_cast<void>(ncclGetVersion(&found));
    return found;
  }
  NcclResult get_unique_id(NcclUniqueId* id) override {
    ncclUniqueId made;
    const auto code = ncclGetUniqueId(&made);
    std::memcpy(id->data(), made.internal, id->size());
    return result(code);
  }
  NcclResult comm_init_rank_config(NcclComm* comm, int ranks, const NcclUniqueId& id, int rank,
                                   const NcclConfig& config) override {
    ncclConfig_t settings = settings_of(config);
    return result(ncclCommInitRankConfig(reinterpret_cast<ncclComm_t*>(comm), ranks, as_id(id),
                                         rank, &settings));
  }
  bool has_scalable_init() const noexcept override { return newer_.init_rank_scalable != nullptr; }
  NcclResult comm_init_rank_scalable(NcclComm* comm, int ranks, int rank,
                                     std::span<const NcclUniqueId> ids,
                                     const NcclConfig& config) override {
    std::vector<ncclUniqueId> shared;
    for (const NcclUniqueId& id : ids) shared.push_back(as_id(id));
    ncclConfig_t settings = settings_of(config);
    return result(newer_.init_rank_scalable(reinterpret_cast<ncclComm_t*>(comm), ranks, rank,
                                            static_cast<int>(shared.size()), shared.data(),
                                            &settings));
  }
  NcclResult comm_split(NcclComm parent, int color, int key, NcclComm* made,
                        const NcclConfig& config) override {
    ncclConfig_t settings = settings_of(config);
    return result(
        ncclCommSplit(as_comm(parent), color, key, reinterpret_cast<ncclComm_t*>(made), &settings));
  }
  NcclResult comm_get_async_error(NcclComm comm, NcclResult* state) override {
    ncclResult_t found = ncclSuccess;
    const auto code = ncclCommGetAsyncError(as_comm(comm), &found);
    *state = result(found);
    return result(code);
  }
  NcclResult comm_finalize(NcclComm comm) override {
    return result(ncclCommFinalize(as_comm(comm)));
  }
  NcclResult comm_destroy(NcclComm comm) noexcept override {
    return result(ncclCommDestroy(as_comm(comm)));
  }
  NcclResult comm_abort(NcclComm comm) noexcept override {
    return result(ncclCommAbort(as_comm(comm)));
  }
  NcclResult mem_alloc(void** memory, std::size_t bytes) override {
    return result(ncclMemAlloc(memory, bytes));
  }
  NcclResult mem_free(void* memory) noexcept override { return result(ncclMemFree(memory)); }
  NcclResult comm_register(NcclComm comm, void* memory, std::size_t bytes, void** handle) override {
    return result(ncclCommRegister(as_comm(comm), memory, bytes, handle));
  }
  NcclResult comm_deregister(NcclComm comm, void* handle) noexcept override {
    return result(ncclCommDeregister(as_comm(comm), handle));
  }
  NcclResult comm_window_register(NcclComm comm, void* memory, std::size_t bytes,
                                  NcclWindow* window) override {
    // Like newer versions on a platform without windows.
    *window = nullptr;
    if (newer_.window_register == nullptr) return NcclResult::success;
    return result(newer_.window_register(as_comm(comm), memory, bytes, window, symmetric_window));
  }
  NcclResult comm_window_deregister(NcclComm comm, NcclWindow window) noexcept override {
    if (newer_.window_deregister == nullptr) return NcclResult::invalid_argument;
    return result(newer_.window_deregister(as_comm(comm), window));
  }

  NcclResult all_reduce(const void* from, void* to, std::size_t count, ElementType type,
                        ReduceOp op, NcclComm comm, CudaStream stream) override {
    return result(
        ncclAllReduce(from, to, count, as_type(type), as_op(op), as_comm(comm), as_stream(stream)));
  }
  NcclResult reduce_scatter(const void* from, void* to, std::size_t received_count,
                            ElementType type, ReduceOp op, NcclComm comm,
                            CudaStream stream) override {
    return result(ncclReduceScatter(from, to, received_count, as_type(type), as_op(op),
                                    as_comm(comm), as_stream(stream)));
  }
  NcclResult all_gather(const void* from, void* to, std::size_t sent_count, ElementType type,
                        NcclComm comm, CudaStream stream) override {
    return result(
        ncclAllGather(from, to, sent_count, as_type(type), as_comm(comm), as_stream(stream)));
  }
  NcclResult broadcast(const void* from, void* to, std::size_t count, ElementType type, int root,
                       NcclComm comm, CudaStream stream) override {
    return result(
        ncclBroadcast(from, to, count, as_type(type), root, as_comm(comm), as_stream(stream)));
  }
  NcclResult send(const void* from, std::size_t count, ElementType type, int peer, NcclComm comm,
                  CudaStream stream) override {
    return result(ncclSend(from, count, as_type(type), peer, as_comm(comm), as_stream(stream)));
  }
  NcclResult recv(void* to, std::size_t count, ElementType type, int peer, NcclComm comm,
                  CudaStream stream) override {
    return result(ncclRecv(to, count, as_type(type), peer, as_comm(comm), as_stream(stream)));
  }
  NcclResult group_start() override { return result(ncclGroupStart()); }
  NcclResult group_end() override { return result(ncclGroupEnd()); }

  std::string error_string(NcclResult code) const override {
    return ncclGetErrorString(static_cast<ncclResult_t>(code));
  }
  std::string last_error(NcclComm comm) const override {
    const char* const text = ncclGetLastError(as_comm(comm));
    return text == nullptr ? "" : text;
  }

 private:
  NewerFunctions newer_;
};

}  // namespace

void* find_nccl_symbol(const char* name) noexcept {
  return dlsym(RTLD_DEFAULT, name);
}

std::unique_ptr<NcclApi> make_nccl_api(NcclSymbol find) {
  return std::make_unique<LibraryApi>(find);
}

}  // namespace lockstep
