#pragma once

#include <mpi.h>

#include <string>

namespace lockstep {

/// An MPI communicator of its own over a set of ranks; its errors become exceptions.
class MpiGroup final {
 public:
  /// All ranks of the job; collective over them.
  MpiGroup();
  /// As Communicator::split().
  MpiGroup(const MpiGroup& parent, int color, int key);
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;
  ~MpiGroup();

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// Call before destruction if requests are in flight: the communicator is then not freed.
  void abandon() noexcept { comm_ = MPI_COMM_NULL; }
  /// Throws Error(internal) with the name of the call, this process's rank in the job and its host.
  void check(int code, const char* call) const;

 private:
  void describe();

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int world_rank_ = 0;  ///< for error messages
  std::string host_;
};

}  // namespace lockstep
