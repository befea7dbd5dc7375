#include "lockstep/cli/program.hpp"

#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/option_value.hpp"
#include "lockstep/core/address_space.hpp"
#include "lockstep/core/current_error.hpp"
#include "lockstep/core/print.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/runtime/open_files.hpp"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>

namespace lockstep::cli {
namespace {

/// An example that needs no data and takes a few seconds.
constexpr const char* line_to_try =
    "lockstep train --synthetic --model mini-resnet --width 8 --image-size 32 --classes 10 "
    "--max-steps 20";

/// One line per command.
std::string list_of_commands() {
  std::string text;
  for (const Command& command : commands()) {
    text += fmt::format("  {:<16}{}\n", command.name, command.summary);
  }
  return text;
}

void print_help() {
  print_out(
      "lockstep {}: synchronous data-parallel training of image networks over MPI\n\n"
      "usage: lockstep COMMAND [options]\n\n"
      "{}",
      version(), Lines{list_of_commands()});
  print_out(
      "\n"
      "  lockstep COMMAND --help   show a command's options; train --help all: all of them\n"
      "  lockstep --version        show the version\n\n"
      "To use several processes: mpirun -n 4 lockstep train ..., or srun lockstep train ...\n"
      "Exit status: 0 done; 1 doctor found a fault; 64 bad usage; 65 bad input;\n"
      "66 no input; 69 diverged; 70 internal error; 73 cannot write; 75 stopped on request,\n"
      "submit the same command again.\n");
}

ExitStatus dispatch(int& argc, char**& argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) {
    const auto show_commands = [](bool is_first) -> ExitStatus {
      if (is_first) {
        print_err("\n{}\ntry: {}\n\n", Lines{list_of_commands()}, line_to_try);
      }
      fail(ExitStatus::usage,
           "no command given (lockstep trains image networks over MPI, on CPUs and GPUs); give "
           "one of those above, or see lockstep --help");
    };
    if (!terminal_facts().has_launcher) return show_commands(true);
    return run_job(argc, argv, [&](Job& job) { return show_commands(job.is_first()); },
                   {.for_all_ranks = false});
  }
  const std::string& name = words.front();
  if (name == "--help" || name == "-h" || name == "help") {
    print_help();
    return ExitStatus::ok;
  }
  if (name == "--version") {
    print_out("lockstep {}\n", version());
    return ExitStatus::ok;
  }
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (name == command.name) {
      Invocation invocation{
          .argc = argc, .argv = argv, .arguments = {words.begin() + 1, words.end()}};
      return command.run(invocation);
    }
    names.emplace_back(command.name);
  }
  const std::string near = nearest_name(name, names);
  fail(ExitStatus::usage, "{} is not a command ({}); see lockstep --help", name,
       near.empty() ? "there are " + fmt::format("{}", fmt::join(names, ", "))
                    : "did you mean " + near + "?");
}

/// Prints an error raised before MPI started, only once even if a launcher started many processes.
ExitStatus report(int& argc, char**& argv, const Error& error) {
  if (!terminal_facts().has_launcher) {
    print_error(error.what());
    return error.status();
  }
  return run_job(argc, argv, [&](Job&) -> ExitStatus { throw Error(error); },
                 {.for_all_ranks = false});
}

}  // namespace
}  // namespace lockstep::cli

namespace lockstep {

int run_program(int argc, char** argv, std::vector<OwnModel> models) {
  ExitStatus status = ExitStatus::ok;
  use_one_heap_if_limited();
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f then fails like one on a full disk
  raise_open_file_limit();
  try {
    for (OwnModel& model : models) add_model(std::move(model));
    status = cli::dispatch(argc, argv);
  } catch (const Error& error) {
    status = cli::report(argc, argv, error);
  } catch (...) {
    const Error error = current_error();
    print_error(error.what());
    status = error.status();
  }
  // Fail if the result was lost to a full disk or a closed pipe.
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && status == ExitStatus::ok) {
    print_error("cannot write to standard output (disk full, or its reader is gone)");
    status = ExitStatus::cannot_write;
  }
  return static_cast<int>(status);
}

}  // namespace lockstep
