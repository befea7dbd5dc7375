#pragma once

namespace lockstep {

/// MPI from construction to destruction, owned by main. Works without a launcher (one rank). Asks
/// for MPI_THREAD_FUNNELED and checks it, sets MPI_ERRORS_RETURN and the algorithm of started
/// all-reduces (choose_all_reduce). Destruction finalizes.
class MpiEnvironment final {
 public:
  MpiEnvironment(int& argc, char**& argv);
  ~MpiEnvironment();
  MpiEnvironment(const MpiEnvironment&) = delete;
  MpiEnvironment& operator=(const MpiEnvironment&) = delete;
};

/// Ends every rank of the job with `status` (MPI_Abort).
[[noreturn]] void abort_job(int status) noexcept;

}  // namespace lockstep
