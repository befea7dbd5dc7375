#pragma once

#include "lockstep/core/error.hpp"

#include <nlohmann/json_fwd.hpp>

#include <span>
#include <string>
#include <vector>

namespace lockstep::cli {

/// What follows the subcommand's name, and what MPI wants to see of the command line.
struct Invocation {
  int& argc;
  char**& argv;
  std::vector<std::string> arguments;
};

/// A subcommand: its `run` prints help where `--help` is among the arguments, before MPI starts;
/// what it throws is printed by main.
struct Command {
  const char* name;
  const char* summary;  ///< one line, of `lockstep --help`
  ExitStatus (*run)(Invocation& invocation);
};

/// All of them, in the order `lockstep --help` shows.
[[nodiscard]] std::span<const Command> commands();

ExitStatus run_bench(Invocation& invocation);
ExitStatus run_doctor(Invocation& invocation);
ExitStatus run_eval(Invocation& invocation);
ExitStatus run_pack(Invocation& invocation);
ExitStatus run_train(Invocation& invocation);
ExitStatus run_inspect(Invocation& invocation);

/// Whether `--help` or `-h` is among them.
[[nodiscard]] bool wants_help(const std::vector<std::string>& arguments);

/// One line to standard output. Paths and names may hold any bytes: what is not UTF-8 is replaced.
void print_json(const nlohmann::ordered_json& json);

}  // namespace lockstep::cli
