#pragma once

#include "lockstep/core/error.hpp"

#include <nlohmann/json_fwd.hpp>

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

/// Prints one line of ASCII to standard output, so no name can reach a terminal as a control
/// sequence. Replaces bytes that are not UTF-8, which paths may contain.
void print_json(const nlohmann::ordered_json& json);

}  // namespace lockstep::cli
