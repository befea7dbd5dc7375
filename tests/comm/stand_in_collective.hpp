#pragma once

#include "comm/stand_in_queues.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/nccl_api.hpp"

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace lockstep::test {

class StandInCollective;

/// A device has room for one collective of NCCL, which holds it until its peers have made it too.
struct StandInDevice {
  const StandInCollective* occupant = nullptr;
};

/// One collective of NCCL, or the sends and receives of a group, made over MPI.
class StandInCollective final : public StandInTask {
 public:
  enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, group };
  struct Work {
    Kind kind = Kind::all_reduce;
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t count = 0;
    NcclType type = NcclType::u8;
    NcclOp op = NcclOp::sum;
    int root = 0;
  };
  struct Part {
    bool receives;
    void* memory;
    int bytes;
    int peer;
  };
  [[nodiscard]] static std::size_t size_of(NcclType type);

  /// Adds one to `made` whenever it has been made.
  StandInCollective(Communicator& mpi, MPI_Comm peers, StandInDevice& device, int& made)
      : mpi_(mpi), peers_(peers), device_(device), made_(made) {}

  Work work;
  std::vector<Part> parts;  ///< of a group
  bool busy = false;        ///< from its call until it has been made
  bool hangs = false;
  int number = 0;  ///< of those of its device

  /// It lets the device go.
  void abort() noexcept;
  /// Neither made nor aborted.
  [[nodiscard]] bool is_pending() const noexcept { return busy && !aborted_; }
  [[nodiscard]] bool attempt() override;
  /// Posts it if that has not been done, whatever hinders it; true once it has been made.
  [[nodiscard]] bool move();

 private:
  [[nodiscard]] bool exchange();

  Communicator& mpi_;
  MPI_Comm peers_;
  StandInDevice& device_;
  int& made_;
  bool aborted_ = false;
  bool posted_ = false;
  Request request_;
  std::vector<MPI_Request> requests_;
};

}  // namespace lockstep::test
