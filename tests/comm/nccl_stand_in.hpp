#pragma once

#include "comm/stand_in_communicator.hpp"
#include "comm/stand_in_queues.hpp"
#include "lockstep/comm/nccl_api.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace lockstep::test {

/// NCCL and CUDA over host memory and MPI, for the communicators of one device. It is as strict as
/// they are (addresses must be the device's; no call of a communicator before its last one has
/// settled; no query in a capture; no abort while another communicator's collective is queued,
/// unless a group aborts both). `faults` makes calls fail.
///
/// Construction and destruction are collective. The destructor sends the messages that a fault held
/// back, so that MPI has none left: the buffers of all collectives must outlive this object, and
/// all ranks must have started the same collectives.
class NcclStandIn final : public NcclApi {
 public:
  using Faults = StandInFaults;
  using Counts = StandInCounts;

  /// One communicator over all ranks.
  NcclStandIn();
  /// One communicator over each set of ranks, started in this order.
  explicit NcclStandIn(std::span<const std::vector<int>> sets);
  /// No communicator yet; add() makes them. Collective.
  enum class Empty { yes };
  explicit NcclStandIn(Empty /*empty*/) {}
  void add(std::span<const std::vector<int>> sets);
  NcclStandIn(const NcclStandIn&) = delete;
  NcclStandIn& operator=(const NcclStandIn&) = delete;
  ~NcclStandIn() override;

  Faults faults;
  StandInQueues queues;
  /// Draws what NCCL leaves open from `seed`: how many queries a call needs, what it returns until
  /// then, which ranks get a window, and how long a collective takes. 0: nothing varies.
  void vary(std::uint64_t seed);
  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }
  /// Counts collectives from here on, for faults too.
  void count_from_here() { counts_.submitted = counts_.collectives = 0; }

  CudaResult stream_create(CudaStream* stream) override;
  void stream_destroy(CudaStream stream) noexcept override;
  CudaResult stream_query(CudaStream stream) override;
  CudaResult stream_is_capturing(CudaStream stream, bool* capturing) override;
  CudaResult stream_wait_event(CudaStream stream, CudaEvent event) override;
  CudaResult event_create(CudaEvent* event) override;
  void event_destroy(CudaEvent event) noexcept override;
  CudaResult event_record(CudaEvent event, CudaStream stream) override;
  CudaResult event_query(CudaEvent event) override;
  CudaResult device_allocate(void** memory, std::size_t bytes) override;
  void device_release(void* memory) noexcept override;
  CudaResult host_allocate(void** memory, std::size_t bytes) override;
  void host_release(void* memory) noexcept override;
  CudaResult copy_to_host(void* to, const void* from, std::size_t bytes,
                          CudaStream stream) override;
  CudaResult copy_to_device(void* to, const void* from, std::size_t bytes,
                            CudaStream stream) override;
  std::string error_string(CudaResult result) const override;

  int version() const override { return 22809; }
  NcclResult get_unique_id(NcclUniqueId* id) override;
  NcclResult comm_init_rank_config(NcclComm* comm, int ranks, const NcclUniqueId& id, int rank,
                                   const NcclConfig& config) override;
  bool has_scalable_init() const noexcept override { return !faults.no_scalable_init; }
  NcclResult comm_init_rank_scalable(NcclComm* comm, int ranks, int rank,
                                     std::span<const NcclUniqueId> ids,
                                     const NcclConfig& config) override;
  NcclResult comm_split(NcclComm parent, int color, int key, NcclComm* made,
                        const NcclConfig& config) override;
  NcclResult comm_get_async_error(NcclComm comm, NcclResult* state) override;
  NcclResult comm_finalize(NcclComm comm) override;
  NcclResult comm_destroy(NcclComm comm) noexcept override;
  NcclResult comm_abort(NcclComm comm) noexcept override;
  NcclResult mem_alloc(void** memory, std::size_t bytes) override;
  NcclResult mem_free(void* memory) noexcept override;
  NcclResult comm_register(NcclComm comm, void* memory, std::size_t bytes, void** handle) override;
  NcclResult comm_deregister(NcclComm comm, void* handle) noexcept override;
  NcclResult comm_window_register(NcclComm comm, void* memory, std::size_t bytes,
                                  NcclWindow* window) override;
  NcclResult comm_window_deregister(NcclComm comm, NcclWindow window) noexcept override;
  NcclResult all_reduce(const void* from, void* to, std::size_t count, ElementType type,
                        ReduceOp op, NcclComm comm, CudaStream stream) override;
  NcclResult reduce_scatter(const void* from, void* to, std::size_t received_count,
                            ElementType type, ReduceOp op, NcclComm comm,
                            CudaStream stream) override;
  NcclResult all_gather(const void* from, void* to, std::size_t sent_count, ElementType type,
                        NcclComm comm, CudaStream stream) override;
  NcclResult broadcast(const void* from, void* to, std::size_t count, ElementType type, int root,
                       NcclComm comm, CudaStream stream) override;
  NcclResult send(const void* from, std::size_t count, ElementType type, int peer, NcclComm comm,
                  CudaStream stream) override;
  NcclResult recv(void* to, std::size_t count, ElementType type, int peer, NcclComm comm,
                  CudaStream stream) override;
  NcclResult group_start() override;
  NcclResult group_end() override;
  std::string error_string(NcclResult result) const override;
  std::string last_error(NcclComm comm) const override;

 private:
  struct Registered {
    NcclComm comm;
    std::byte* memory;
    std::size_t bytes;
  };
  /// Null if `comm` is not one of its communicators.
  [[nodiscard]] StandInCommunicator* find(NcclComm comm) noexcept;
  [[nodiscard]] NcclResult add_memory(NcclComm comm, void* memory, std::size_t bytes);
  [[nodiscard]] NcclResult remove_memory(NcclComm comm, void* handle) noexcept;
  [[nodiscard]] NcclResult start(NcclComm* comm, int ranks, std::span<const NcclUniqueId> ids,
                                 int rank, const NcclConfig& config);
  [[nodiscard]] bool is_registered(NcclComm comm, const void* memory, std::size_t bytes) const;
  [[nodiscard]] NcclResult make(const StandInCollective::Work& work, NcclComm comm,
                                CudaStream stream);
  [[nodiscard]] NcclResult add_to_group(const StandInCollective::Part& part, NcclComm comm,
                                        CudaStream stream);
  /// Waits, like cudaFree, which an abort calls, until the device has ended all collectives.
  void wait_for_device();

  Counts counts_;
  StandInVariation variation_;
  StandInCommunicator::Shared shared_{
      .queues = queues, .faults = faults, .counts = counts_, .variation = variation_};
  std::deque<StandInCommunicator> communicators_;
  std::vector<Registered> registered_;
  std::size_t started_ = 0;
  bool grouping_ = false;
  bool aborting_ = false;  ///< the group contains an abort
};

}  // namespace lockstep::test
