#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace lockstep {

/// What one process of a job owns, in the order it is made: MPI, the communicator, its place, its
/// cores.
class Job final {
 public:
  Job(int& argc, char**& argv);

  [[nodiscard]] Communicator& comm() noexcept { return *comm_; }
  [[nodiscard]] const ProcessGrid& grid() const noexcept { return grid_; }
  [[nodiscard]] bool is_first() const noexcept { return grid_.rank == 0; }
  /// Pins this rank's threads, once; `requested` 0 takes the affinity mask's share. Collective.
  const ThreadBinding& bind(int requested);

 private:
  MpiEnvironment environment_;
  std::unique_ptr<Communicator> comm_;
  ProcessGrid grid_;
  std::optional<ThreadBinding> binding_;
};

/// Runs a subcommand that uses MPI, on every rank, and sees to its end. Where `body` throws, ranks
/// that fail alike agree: the lowest prints, all finalize and return its status. Where the others
/// do not come within a few seconds (this rank failed alone), this rank prints and aborts the job.
[[nodiscard]] ExitStatus run_job(int& argc, char**& argv,
                                 const std::function<ExitStatus(Job&)>& body);

/// "lockstep: error: ..." on standard error.
void print_error(const std::string& message);

}  // namespace lockstep
