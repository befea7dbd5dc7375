#include "mpi_group.hpp"

#include "lockstep/core/error.hpp"
#include "processor_name.hpp"

#include <array>

namespace lockstep {

MpiGroup::MpiGroup() : host_(processor_name()) {
  check(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_), "MPI_Comm_rank");
  check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  describe();
}

MpiGroup::MpiGroup(const MpiGroup& parent, int color, int key)
    : world_rank_(parent.world_rank_), host_(parent.host_) {
  check(MPI_Comm_split(parent.comm_, color, key, &comm_), "MPI_Comm_split");
  describe();
}

void MpiGroup::describe() {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

MpiGroup::~MpiGroup() {
  if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
}

void MpiGroup::check(int code, const char* call) const {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(ExitStatus::internal, "{} failed on rank {} ({}): {}", call, world_rank_, host_,
       text.data());
}

}  // namespace lockstep
