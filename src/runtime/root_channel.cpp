#include "lockstep/runtime/root_channel.hpp"

#include "lockstep/comm/mpi_lock.hpp"
#include "lockstep/core/error.hpp"

#include <mpi.h>

#include <mutex>

namespace lockstep {

struct RootChannel::Connection {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  bool failed = false;

  void check(int code, const char* call, int other) {
    if (code == MPI_SUCCESS) return;
    failed = true;
    fail(ExitStatus::internal,
         "{} between rank {} and rank {} failed with MPI's code {} (a rank may be lost); see the "
         "other ranks' messages",
         call, rank, other, code);
  }
};

RootChannel::RootChannel() : connection_(std::make_unique<Connection>()) {
  Connection& c = *connection_;
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) return;
  MPI_Comm_rank(MPI_COMM_WORLD, &c.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &c.size);
  if (const int code = MPI_Comm_dup(MPI_COMM_WORLD, &c.comm); code != MPI_SUCCESS) {
    fail(ExitStatus::internal,
         "rank {} gets no communicator for messages between rank 0 and the others (MPI_Comm_dup "
         "failed with MPI's code {}, a rank may be lost); see the other ranks' messages",
         c.rank, code);
  }
  MPI_Comm_set_errhandler(c.comm, MPI_ERRORS_RETURN);
}

RootChannel::~RootChannel() {
  // Not freed after a failure: a later communicator could receive its leftover messages.
  if (connection_->comm != MPI_COMM_NULL && !connection_->failed) MPI_Comm_free(&connection_->comm);
}

int RootChannel::rank() const noexcept {
  return connection_->rank;
}
int RootChannel::size() const noexcept {
  return connection_->size;
}

void RootChannel::send(int to, std::span<const std::byte> bytes) {
  Connection& c = *connection_;
  const std::lock_guard lock(mpi_mutex());
  c.check(MPI_Send(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, to, 0, c.comm),
          "MPI_Send", to);
}

void RootChannel::receive(int from, std::span<std::byte> bytes) {
  Connection& c = *connection_;
  const std::lock_guard lock(mpi_mutex());
  c.check(MPI_Recv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, from, 0, c.comm,
                   MPI_STATUS_IGNORE),
          "MPI_Recv", from);
}

}  // namespace lockstep
