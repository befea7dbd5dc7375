#pragma once

#include "lockstep/config/option_table.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/print.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep::cli {

/// The arguments after the subcommand's name, and the command line for MPI_Init.
struct Invocation {
  int& argc;
  char**& argv;
  std::vector<std::string> arguments;
};

/// A subcommand. `run` prints help before MPI starts if `--help` is among the arguments; main
/// prints the exceptions it throws.
struct Command {
  const char* name;
  const char* summary;  ///< one line for `lockstep --help`
  ExitStatus (*run)(Invocation& invocation);
};

/// All subcommands, in the order of `lockstep --help`.
[[nodiscard]] std::span<const Command> commands();

ExitStatus run_bench(Invocation& invocation);
ExitStatus run_compare(Invocation& invocation);
ExitStatus run_doctor(Invocation& invocation);
ExitStatus run_eval(Invocation& invocation);
ExitStatus run_export(Invocation& invocation);
ExitStatus run_export_metrics(Invocation& invocation);
ExitStatus run_pack(Invocation& invocation);
ExitStatus run_train(Invocation& invocation);
ExitStatus run_inspect(Invocation& invocation);
ExitStatus run_report(Invocation& invocation);
ExitStatus run_restart(Invocation& invocation);
ExitStatus run_scale(Invocation& invocation);
ExitStatus run_sweep(Invocation& invocation);
ExitStatus run_watch(Invocation& invocation);

/// Whether `--help` or `-h` is among the arguments.
[[nodiscard]] bool wants_help(const std::vector<std::string>& arguments);
/// Whether the word `all` follows it. Most commands show all of their options anyway.
[[nodiscard]] bool wants_all_help(const std::vector<std::string>& arguments);

/// If `--help` is among the arguments, prints `usage` and the options, and returns true.
template <typename Arguments>
[[nodiscard]] bool prints_help(const Invocation& invocation, const OptionTable<Arguments>& options,
                               const char* usage) {
  if (!wants_help(invocation.arguments)) return false;
  print_out("{}{}", Lines{usage}, Lines{options.help()});
  return true;
}

/// The one argument of `command` that is no option: "run directory". Error(usage) for more or none.
[[nodiscard]] const std::string& only_argument(const std::vector<std::string>& positional,
                                               const char* command, const char* what);

/// Prints one line of ASCII to standard output, so no name can reach a terminal as a control
/// sequence. Replaces bytes that are not UTF-8, which paths may contain.
void print_json(const Json& json);

}  // namespace lockstep::cli
