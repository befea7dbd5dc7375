#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/option_conditions.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/print.hpp"
#include "lockstep/core/text_file.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/runtime/signals.hpp"
#include "lockstep/train/trainer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

namespace lockstep::cli {
namespace {

bool wants_printed_config(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--print-config" || argument == "--print-config=true";
  });
}

/// Rank 0 reads the file and broadcasts it.
std::string read_on_first_rank(Communicator& comm, const std::string& path) {
  std::string text;
  collectively(comm, [&] {
    if (comm.rank() == 0) text = read_text_file(path);
  });
  return broadcast_text(comm, text);
}

}  // namespace

ExitStatus run_train(Invocation& invocation) {
  if (wants_help(invocation.arguments)) {
    const HelpDetail detail =
        wants_all_help(invocation.arguments) ? HelpDetail::all : HelpDetail::first;
    print_out("{}", Lines{train_help(detail)});
    std::vector<std::string_view> own = model_names();
    std::erase_if(own, is_built_in);
    if (!own.empty()) print_out("\nThis program's own models: {}\n", fmt::join(own, " "));
    return ExitStatus::ok;
  }
  if (wants_printed_config(invocation.arguments)) {
    const ParsedCommand command = parse_train_options(invocation.arguments);
    if (command.print_config) {
      require_effects(command.config, command.only_on_line);
      print_exact(print_config(command.config));
      return ExitStatus::ok;
    }
  }
  // Installed before MPI starts, which takes seconds on many nodes: a signal during that time must
  // stop the run after its first step, not kill it.
  const SignalFlag signals;
  const auto body = [&](Job& job) {
    Communicator& comm = job.comm();
    job.start_clock().enter("options");
    const ParsedCommand command = parse_train_options(
        invocation.arguments,
        [&](const std::string& path) { return read_on_first_rank(comm, path); });
    const Config& config = command.config;
    require_effects(config, command.only_on_line);
    const ThreadBinding& binding = job.bind(static_cast<int>(config.threads));
    return train(config, {.comm = comm,
                          .grid = job.grid(),
                          .binding = binding,
                          .keep_watchdog = [&job](auto watchdog) { job.keep(std::move(watchdog)); },
                          .start_clock = job.start_clock()})
        .status;
  };
  return run_job(invocation.argc, invocation.argv, body, {.may_resume = true});
}

}  // namespace lockstep::cli
