#pragma once

#include "comm/stand_in_collective.hpp"
#include "comm/stand_in_queues.hpp"
#include "comm/stand_in_variation.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/nccl_api.hpp"

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep::test {

/// What a communicator is at.
enum class StandInPhase { absent, starting, ready, splitting, settling, registering, finalizing };

struct StandInFaults {
  bool no_memory = false;     ///< allocations on the device fail
  bool device_fails = false;  ///< queries of its streams fail
  bool init_hangs = false;
  bool init_fails = false;
  int init_polls = 3;          ///< queries until the start has settled
  int settle_polls = 2;        ///< queries until a collective is queued; 0: at once
  bool success_early = false;  ///< a call returns success before its collective is queued
  int error_after = -1;        ///< number of collectives before an asynchronous error; -1: no error
  int hanging = -1;            ///< number of a collective that never completes; -1: none
  bool finalize_hangs = false;
  bool abort_is_seen = false;  ///< an abort closes connections: an asynchronous error of the peers
  /// An asynchronous error in this phase; absent: no error.
  StandInPhase error_in = StandInPhase::absent;
  bool no_windows = false;        ///< the platform does not support them
  bool no_scalable_init = false;  ///< this NCCL has no ncclCommInitRankScalable
  /// The communicator with the fault, in the order of starts; -1: every one.
  int where = -1;
};
struct StandInCounts {
  int finalized = 0;
  int destroyed = 0;
  int aborted = 0;
  int submitted = 0;    ///< collectives
  int collectives = 0;  ///< completed
  int registered = 0;   ///< currently, plain and symmetric
  int windows = 0;      ///< symmetric ones of these
  int unknown = 0;      ///< collectives on memory that is not registered
  int allocated = 0;    ///< currently, device and pinned memory
  int ids = 0;          ///< unique ids made
  int scalable = 0;     ///< communicators started with several ids
  int split = 0;        ///< communicators split from another one
  int misuses = 0;      ///< calls that NCCL forbids in the state of the communicator
};

/// One of a device's communicators in the NCCL stand-in, over some ranks of the job. Construction
/// and destruction are collective over the job.
class StandInCommunicator final {
 public:
  /// State shared by all communicators of a device.
  struct Shared {
    StandInQueues& queues;
    const StandInFaults& faults;
    StandInCounts& counts;
    StandInVariation& variation;
    StandInDevice device = {};
    int lost = -1;  ///< job rank of the last peer that closed its connections; -1: none
  };
  /// `number`: position among the device's communicators. Ranks with the same color form one.
  StandInCommunicator(Shared& shared, int number, int color);
  /// Collective over `parent` only, which blocks: for splits after which nothing is missing.
  StandInCommunicator(StandInCommunicator& parent, int number, int color, int key);
  StandInCommunicator(const StandInCommunicator&) = delete;
  StandInCommunicator& operator=(const StandInCommunicator&) = delete;
  /// Sends the messages that a fault held back, so that MPI has none left. No rank may still wait
  /// for them.
  ~StandInCommunicator();

  [[nodiscard]] int ranks() const noexcept { return mpi_->size(); }
  /// `ids`: the bytes of all unique ids.
  [[nodiscard]] NcclResult init(int ranks, std::string_view ids, int rank);
  /// Splits this communicator: `child` starts, and its handle is in `made` once it is ready.
  [[nodiscard]] NcclResult split(StandInCommunicator& child, int color, int key, NcclComm* made);
  [[nodiscard]] NcclResult get_async_error(NcclResult* state);
  [[nodiscard]] NcclResult finalize();
  [[nodiscard]] NcclResult destroy() noexcept;
  /// Aborts queued collectives; the caller frees the communicator.
  [[nodiscard]] NcclResult abort() noexcept;
  /// Whether a stream has a collective that is neither complete nor aborted.
  [[nodiscard]] bool has_queued() const;
  [[nodiscard]] NcclResult require_ready();
  /// Starts a registration or its end, which later calls of the communicator must wait for. Writes
  /// `value` to `result` when it has settled; null: nothing to write.
  [[nodiscard]] NcclResult register_memory(int usual_polls, void** result, void* value);
  [[nodiscard]] NcclResult make(const StandInCollective::Work& work, CudaStream stream);
  [[nodiscard]] NcclResult add_to_group(const StandInCollective::Part& part, CudaStream stream);
  /// Submits the operations that were added to the group.
  [[nodiscard]] NcclResult end_group();

 private:
  using State = StandInPhase;

  void make_collectives();
  [[nodiscard]] bool is_told(bool fault) const noexcept {
    return fault && (shared_.faults.where < 0 || shared_.faults.where == number_);
  }
  [[nodiscard]] StandInCollective& free_collective();
  [[nodiscard]] NcclResult submit(StandInCollective& collective, CudaStream stream);
  void post_start();
  void close_connections() noexcept;
  /// Whether a peer has closed its connections.
  [[nodiscard]] bool has_lost_peer();
  [[nodiscard]] NcclResult begin(State state, int polls);
  /// What the last call of begin() started is done.
  void settle();
  [[nodiscard]] NcclResult misused(NcclResult result) {
    ++shared_.counts.misuses;
    return result;
  }

  Shared& shared_;
  int number_;
  std::unique_ptr<Communicator> mpi_;
  MPI_Comm peers_ = MPI_COMM_NULL;
  std::deque<StandInCollective> collectives_;
  State state_ = State::absent;
  int polls_left_ = 0;
  StandInCommunicator* parent_ = nullptr;
  StandInCommunicator* child_ = nullptr;  ///< being split from this communicator
  NcclComm* made_ = nullptr;              ///< the handle of child_
  std::int64_t meeting_[2] = {0, 0};
  bool met_ = false;
  int job_rank_ = 0;
  std::vector<MPI_Request> closings_;  ///< one to each peer, once this rank has closed
  int closed_peers_ = 0;               ///< number of peers known to have closed
  Request start_;
  void** result_ = nullptr;  ///< receives value_
  void* value_ = nullptr;
  StandInCollective* settling_ = nullptr;
  CudaStream settling_stream_ = nullptr;
  StandInCollective* group_ = nullptr;
  CudaStream group_stream_ = nullptr;
};

}  // namespace lockstep::test
