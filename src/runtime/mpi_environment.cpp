#include "lockstep/runtime/mpi_environment.hpp"

#include "lockstep/core/error.hpp"

#include <mpi.h>

#include <cstdlib>

namespace lockstep {

MpiEnvironment::MpiEnvironment(int& argc, char**& argv) {
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
    fail(ExitStatus::internal,
         "MPI does not start (MPI_Init_thread failed) start with mpirun, or srun --mpi=pmix");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_FUNNELED) {
    fail(ExitStatus::internal,
         "MPI gives thread level {} (loader and saver threads need MPI_THREAD_FUNNELED, {}) use an "
         "MPI built with thread support",
         provided, MPI_THREAD_FUNNELED);
  }
}

MpiEnvironment::~MpiEnvironment() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

void abort_job(int status) noexcept {
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace lockstep
