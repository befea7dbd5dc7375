#pragma once

#include "comm/stand_in_collective.hpp"
#include "comm/stand_in_queues.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/nccl_api.hpp"

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace lockstep::test {

struct StandInFaults {
  bool no_memory = false;  ///< on the device
  bool init_hangs = false;
  bool init_fails = false;
  int init_polls = 3;          ///< questions before the start is settled
  int settle_polls = 2;        ///< questions before a collective is queued; 0: at once
  bool success_early = false;  ///< a collective's call says so before it is queued
  int error_after = -1;        ///< collectives, then an asynchronous error
  int hanging = -1;            ///< the number of a collective that is never made
  bool finalize_hangs = false;
  bool no_windows = false;  ///< the platform has none
  /// The communicator that starts badly or finds the error, by the order of starts; -1: each.
  int where = -1;
};
struct StandInCounts {
  int finalized = 0;
  int destroyed = 0;
  int aborted = 0;
  int submitted = 0;    ///< collectives
  int collectives = 0;  ///< made
  int registered = 0;   ///< at this time, plain and symmetric
  int windows = 0;      ///< of these
  int unknown = 0;      ///< collectives on memory that is not registered
  int allocated = 0;    ///< at this time, device and pinned memory
};

/// One of a device's communicators in the stand-in's NCCL, over some ranks of the job. Making and
/// destroying it is collective over the job.
class StandInCommunicator final {
 public:
  /// What the communicators of a device share.
  struct Shared {
    StandInQueues& queues;
    const StandInFaults& faults;
    StandInCounts& counts;
    StandInDevice device = {};
  };
  /// The `number`-th of the device, over the ranks that give the same color.
  StandInCommunicator(Shared& shared, int number, int color);
  StandInCommunicator(const StandInCommunicator&) = delete;
  StandInCommunicator& operator=(const StandInCommunicator&) = delete;
  /// Sends what a fault held back, so that MPI is left in order. No rank may wait for it any more.
  ~StandInCommunicator();

  [[nodiscard]] int ranks() const noexcept { return mpi_->size(); }
  [[nodiscard]] NcclResult init(int ranks, const NcclUniqueId& id, int rank);
  [[nodiscard]] NcclResult get_async_error(NcclResult* state);
  [[nodiscard]] NcclResult finalize();
  [[nodiscard]] NcclResult destroy() noexcept;
  /// Asks what is queued to quit; what it takes to free the communicator is the caller's.
  [[nodiscard]] NcclResult abort() noexcept;
  /// Whether a stream has a collective that is neither made nor aborted.
  [[nodiscard]] bool has_queued() const;
  [[nodiscard]] NcclResult require_ready() const;
  /// A call that others of the communicator must wait for.
  [[nodiscard]] NcclResult begin_settling();
  [[nodiscard]] NcclResult make(const StandInCollective::Work& work, CudaStream stream);
  [[nodiscard]] NcclResult add_to_group(const StandInCollective::Part& part, CudaStream stream);
  /// Of what was added.
  [[nodiscard]] NcclResult end_group();

 private:
  enum class State { absent, starting, ready, settling, finalizing };

  [[nodiscard]] bool is_told(bool fault) const noexcept {
    return fault && (shared_.faults.where < 0 || shared_.faults.where == number_);
  }
  [[nodiscard]] StandInCollective& free_collective();
  [[nodiscard]] NcclResult submit(StandInCollective& collective, CudaStream stream);
  void post_start();

  Shared& shared_;
  int number_;
  std::unique_ptr<Communicator> mpi_;
  MPI_Comm peers_ = MPI_COMM_NULL;
  std::deque<StandInCollective> collectives_;
  State state_ = State::absent;
  int polls_left_ = 0;
  std::int64_t meeting_[2] = {0, 0};
  bool met_ = false;
  Request start_;
  StandInCollective* settling_ = nullptr;
  CudaStream settling_stream_ = nullptr;
  StandInCollective* group_ = nullptr;
  CudaStream group_stream_ = nullptr;
};

}  // namespace lockstep::test
