#pragma once

#include "lockstep/core/error.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// Initializes MPI on construction and finalizes it on destruction; owned by main. Works without a
/// launcher (one rank). Asks for MPI_THREAD_SERIALIZED, requires MPI_THREAD_FUNNELED, and sets
/// MPI_ERRORS_RETURN and the send buffers of Open MPI's TCP connections. Ranks that are all on one
/// node open no TCP port for MPI's messages (Open MPI), unless the user sets OMPI_MCA_btl.
class MpiEnvironment final {
 public:
  MpiEnvironment(int& argc, char**& argv);
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
};

/// Open MPI's transports (OMPI_MCA_btl) where all ranks are on one node; empty: its own choice. If
/// the user sets none, they are shared memory only.
[[nodiscard]] std::string mpi_transports();

/// Unsets TMPDIR, TMP and TEMP where they name no directory, without which Open MPI does not start;
/// call before MPI starts. Returns them, "NAME=VALUE", except empty ones.
[[nodiscard]] std::vector<std::string> unset_missing_directories();

/// "Open MPI v4.1.4"
[[nodiscard]] std::string mpi_library();

/// This process's rank as its launcher tells it, without MPI; 0 if there is no launcher.
[[nodiscard]] int rank_before_start() noexcept;

/// Ends every rank of the job with `status` (MPI_Abort), after 0.25 s in which the launcher
/// forwards what this rank has printed.
[[noreturn]] void abort_job(int status) noexcept;
/// abort_job() for threads other than the one that initialized MPI, which should call MPI_Abort but
/// may hang. If MPI_Abort hangs too, the process exits after a while.
[[noreturn]] void abort_from_any_thread(ExitStatus status);

}  // namespace lockstep
