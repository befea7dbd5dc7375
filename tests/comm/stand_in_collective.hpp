#pragma once

#include "comm/stand_in_queues.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/nccl_api.hpp"

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace lockstep::test {

class StandInCollective;

/// The device runs one NCCL collective at a time: it is occupied until all peers have joined.
struct StandInDevice {
  const StandInCollective* occupant = nullptr;
};

/// One NCCL collective, or the sends and receives of a group, executed over MPI.
class StandInCollective final : public StandInTask {
 public:
  enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, group };
  struct Work {
    Kind kind = Kind::all_reduce;
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t count = 0;
    ElementType type = ElementType::u8;
    ReduceOp op = ReduceOp::sum;
    int root = 0;
  };
  struct Part {
    bool receives;
    void* memory;
    int bytes;
    int peer;
  };

  /// Increments `made` each time the collective completes.
  StandInCollective(Communicator& mpi, MPI_Comm peers, StandInDevice& device, int& made)
      : mpi_(mpi), peers_(peers), device_(device), made_(made) {}

  Work work;
  std::vector<Part> parts;  ///< of a group
  bool busy = false;        ///< from its call until it completes
  bool hangs = false;
  /// MPI works on copies, as device memory is accessible only in attempt().
  bool copies = false;
  int number = 0;  ///< sequence number on its device

  /// Aborts the collective and frees the device.
  void abort() noexcept;
  /// Whether it is neither complete nor aborted.
  [[nodiscard]] bool is_pending() const noexcept { return busy && !aborted_; }
  [[nodiscard]] bool attempt() override;
  /// Posts the collective if necessary, despite any fault. Returns whether it is complete.
  [[nodiscard]] bool move();

 private:
  [[nodiscard]] bool exchange();
  /// Copies the work's result out of `result_`.
  void deliver();

  Communicator& mpi_;
  MPI_Comm peers_;
  StandInDevice& device_;
  int& made_;
  bool aborted_ = false;
  bool posted_ = false;
  Request request_;
  std::vector<MPI_Request> requests_;
  // With `copies`.
  std::vector<std::byte> source_;
  std::vector<std::byte> result_;
  std::vector<std::vector<std::byte>> part_copies_;
};

}  // namespace lockstep::test
