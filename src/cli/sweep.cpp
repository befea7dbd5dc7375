#include "lockstep/report/sweep.hpp"

#include "command.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/random_name.hpp"
#include "lockstep/core/text_file.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

namespace lockstep::cli {
namespace {

struct SweepArguments {
  bool json = false;
  std::int64_t line = 0;
  bool write = false;
  std::int64_t max_parallel = 0;
};

OptionTable<SweepArguments> sweep_options() {
  OptionTable<SweepArguments> table;
  table.group("Result")
      .add(&SweepArguments::json, "json", "print one JSON object")
      .add(&SweepArguments::line, "line",
           "print the options of this run for lockstep train, one a line",
           {.min = 1, .defaults = "none"})
      .add(&SweepArguments::write, "write",
           "write the lines of the runs that have not finished to a new file in the run "
           "directory; print the numbers of their array of jobs, and the file")
      .add(&SweepArguments::max_parallel, "max-parallel", "most runs of that array at a time",
           {.min = 1, .defaults = "all"});
  return table;
}

struct SweepCommand {
  SweepArguments own;
  std::string file;
  std::vector<std::string> common;  ///< options for `lockstep train`
};

SweepCommand parse(const std::vector<std::string>& arguments) {
  const OptionTable<SweepArguments> table = sweep_options();
  const std::vector<OptionName> own = table.names();
  std::vector<OptionName> known = train_options().names();
  known.push_back({"config", false});
  known.insert(known.end(), own.begin(), own.end());
  const auto find = [](const std::vector<OptionName>& names, const std::string& name) {
    return std::ranges::find(names, name, &OptionName::name);
  };
  const TokenizedOptions tokens =
      tokenize_command_line(arguments, known, /*allow_positional=*/true);
  SweepCommand command;
  std::size_t part = 0;
  for (const GivenOption& option : tokens.options) {
    if (find(own, option.name) != own.end()) {
      table.set(command.own, option);
      continue;
    }
    if (option.part != part) command.common.emplace_back(override_marker);
    part = option.part;
    // As a script that looks for a switch expects it.
    command.common.push_back(!find(known, option.name)->is_switch
                                 ? fmt::format("--{}={}", option.name, option.value)
                             : option.value == "true"  ? "--" + option.name
                             : option.value == "false" ? "--no-" + option.name
                                                       : "--" + option.name + "=" + option.value);
  }
  command.file = only_argument(tokens.positional, "sweep", "file");
  return command;
}

/// "finished", "finished with lr 0.1; ...", "to run", "to continue (stopped on request, step 120)"
std::string text_of(const report::SweepState& state) {
  if (state.finished && !state.other.empty()) {
    return fmt::format("finished with {}; another --run-dir trains it anew", state.other);
  }
  if (state.finished) return "finished";
  if (state.status.empty()) return "to run";
  return fmt::format("to continue ({}, step {:.0f})", state.status, state.step);
}

/// The runs with their numbers for --line.
std::string table_of(const report::Sweep& sweep, const std::vector<report::SweepState>& states) {
  std::size_t width = 0;
  for (const report::SweepRun& run : sweep.runs) width = std::max(width, run.directory.size());
  std::string text;
  for (std::size_t i = 0; i < sweep.runs.size(); ++i) {
    text += escape_line(fmt::format("{:>3}  {:<{}}  {}", i + 1, sweep.runs[i].directory, width,
                                    text_of(states[i]))) +
            "\n";
  }
  return text +
         escape_line(fmt::format("compare them by: lockstep compare {}/*", sweep.directory)) + "\n";
}

void print_runs(const report::Sweep& sweep, const std::vector<report::SweepState>& states) {
  Json runs = Json::array();
  for (std::size_t i = 0; i < sweep.runs.size(); ++i) {
    runs.push_back({{"run", sweep.runs[i].directory},
                    {"line", sweep.runs[i].line},
                    {"finished", states[i].finished},
                    {"status", states[i].status},
                    {"step", states[i].step}});
  }
  print_json({{"runs", std::move(runs)}});
}

/// The file's name is new, whatever others have put into the directory.
void write_unfinished(const report::Sweep& sweep, const std::vector<report::SweepState>& states,
                      std::int64_t max_parallel) {
  std::string lines;
  std::size_t count = 0;
  for (std::size_t i = 0; i < sweep.runs.size(); ++i) {
    if (states[i].finished) continue;
    lines += sweep.runs[i].line + "\n";
    ++count;
  }
  if (count == 0) return;
  make_directories(sweep.directory, "check --run-dir");
  const std::string path =
      (std::filesystem::absolute(sweep.directory) / (".sweep-" + random_name())).string();
  write_text_atomically(path, lines);
  print_exact(fmt::format("1-{}{}\n{}\n", count,
                          max_parallel == 0 ? "" : fmt::format("%{}", max_parallel), path));
}

}  // namespace

ExitStatus run_sweep(Invocation& invocation) {
  if (prints_help(invocation, sweep_options(),
                  "usage: lockstep sweep FILE [options] [OPTIONS OF LOCKSTEP TRAIN...]\n\n"
                  "Checks a sweep: one run for each line of FILE, which has options of lockstep "
                  "train. They\n"
                  "override those of the command line; lines that begin with # are comments. A "
                  "run's folder\n"
                  "in --run-dir has the name of its line's options, sorted. Prints which runs have "
                  "finished,\n"
                  "and which are to run: by slurm/sweep.sbatch, or one after another.\n")) {
    return ExitStatus::ok;
  }
  const SweepCommand command = parse(invocation.arguments);
  const std::vector<std::string> lines =
      report::sweep_lines(read_text_file(command.file), command.file);
  std::span<const std::string> chosen = lines;
  if (command.own.line > 0) {
    const auto number = static_cast<std::size_t>(command.own.line);
    if (number > lines.size()) {
      fail(ExitStatus::usage, "--line {} is not in {} (it has {} line{} with options); lower it",
           number, command.file, lines.size(), lines.size() == 1 ? "" : "s");
    }
    chosen = chosen.subspan(number - 1, 1);
  }
  const report::Sweep sweep = report::plan_sweep(chosen, command.file, command.common);
  if (command.own.line > 0) {
    print_exact(fmt::format("{}\n", fmt::join(sweep.runs.front().arguments, "\n")));
    return ExitStatus::ok;
  }
  std::vector<report::SweepState> states;
  for (const report::SweepRun& run : sweep.runs) states.push_back(report::state_of(run));
  if (command.own.json) {
    print_runs(sweep, states);
  } else if (command.own.write) {
    print_err("{}", Lines{table_of(sweep, states)});
    write_unfinished(sweep, states, command.own.max_parallel);
  } else {
    print_out("{}", Lines{table_of(sweep, states)});
  }
  return ExitStatus::ok;
}

}  // namespace lockstep::cli
