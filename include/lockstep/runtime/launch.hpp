#pragma once

#include "lockstep/core/environment_variable.hpp"

#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// How a process was started, read from its environment before MPI starts, since MPI libraries set
/// launchers' variables themselves.
struct LaunchFacts {
  enum class Launcher { none, srun, mpirun };
  Launcher launcher = Launcher::none;
  std::optional<int> started = std::nullopt;    ///< number of processes, from the launcher
  std::optional<int> allocated = std::nullopt;  ///< number of tasks in the enclosing allocation
  std::string allocated_by = "SLURM_NTASKS";    ///< the variable of that number
  int process = 0;                              ///< index of this process among `started`
  int local_process = 0;                        ///< index of this process on its node
  std::string node = {};                        ///< Slurm's node name; empty: unknown
  /// None of the process's parents is a launcher: the variables are left over in a shell.
  bool left_over = false;
};
[[nodiscard]] LaunchFacts read_launch(const VariableLookup& lookup);
/// Of this process, with `left_over`.
[[nodiscard]] LaunchFacts launch_of_this_process();

/// "srun", "mpirun" or "no launcher".
[[nodiscard]] const char* launcher_text(LaunchFacts::Launcher launcher) noexcept;
/// Advice for a launcher and an MPI that do not work together.
[[nodiscard]] const char* launch_advice(LaunchFacts::Launcher launcher) noexcept;

/// Why the number of ranks is not what was asked for.
struct LaunchProblem {
  bool is_certain = false;  ///< the launcher says so; else only an allocation does
  std::string text;
};
/// `ranks` and `library`: according to MPI.
[[nodiscard]] std::optional<LaunchProblem> judge_launch(const LaunchFacts& launch, int ranks,
                                                        const std::string& library);

/// Whether a launcher of MPI programs is among the parents of this process; nullopt: unknown, since
/// not all of them can be seen. `proc`: mount point of that file system.
[[nodiscard]] std::optional<bool> has_launcher_parent(const std::string& proc = "/proc");

/// The variable with the address of the process's PMIx server, if that server has ended; empty
/// otherwise. MPI would not start. `variables`: "NAME=VALUE".
[[nodiscard]] std::string ended_launcher(std::span<const char* const> variables);

}  // namespace lockstep
