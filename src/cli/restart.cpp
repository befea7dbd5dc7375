#include "command.hpp"
#include "lockstep/checkpoint/checkpoint_directory.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/environment_variable.hpp"
#include "lockstep/core/exit_advice.hpp"
#include "lockstep/run/directory_lock.hpp"
#include "lockstep/run/restart_decision.hpp"
#include "lockstep/train/run_plan.hpp"

#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>

namespace lockstep::cli {
namespace {

struct RestartArguments {
  std::int64_t status = -1;
  std::int64_t log_bytes = 0;
  bool require_end = false;
  bool asked_to_stop = false;
  bool out_of_memory = false;
  bool preempted = false;
  Relaunch relaunched = Relaunch::none;
  std::string since;

  std::string job;
  std::int64_t max_restarts = RestartLimits{}.restarts;
  std::int64_t stalled_restarts = RestartLimits{}.stalled;
  std::int64_t crash_restarts = RestartLimits{}.crashes;

  bool values = false;
  bool record = false;
  bool in_job = false;
  std::vector<std::string> left_out;
  std::vector<std::string> named;

  std::int64_t ranks = 0;
  Config config;
};

void add_end(OptionTable<RestartArguments>& table) {
  using Own = RestartArguments;
  table.group("How the ranks ended")
      .add(&Own::status, "status", "status of the ranks' launcher",
           {.min = 0, .max = 255, .defaults = "required"})
      .add(&Own::log_bytes, "log-bytes", "size of rank 0's log before the ranks were started",
           {.unit = "bytes", .min = 0})
      .add(&Own::require_end, "require-end",
           "take status 0 for success only if rank 0 has logged the end of the run")
      .add(&Own::asked_to_stop, "asked-to-stop", "the ranks were asked to save and stop")
      .add(&Own::out_of_memory, "out-of-memory",
           "the scheduler reports that a rank ran out of memory")
      .add(&Own::preempted, "preempted",
           "the scheduler has preempted the job, so that it does not count as stalled")
      .add(&Own::relaunched, "relaunched",
           "whether these ranks had been started again within their "
           "job, on the same number of nodes or on fewer",
           {.choices = {"no", "same", "fewer"}})
      .add(&Own::since, "since",
           "also find the hosts that the ranks' logs name since then, as in "
           "'2026-11-25 10:00:00'");
}

void add_limits(OptionTable<RestartArguments>& table) {
  using Own = RestartArguments;
  table.group("Limits")
      .add(&Own::job, "job", "the submission whose restarts count: the first of its jobs",
           {.defaults = "SLURM_JOB_ID"})
      .add(&Own::max_restarts, "max-restarts", "restarts of a submission", {.min = 0})
      .add(&Own::stalled_restarts, "stalled-restarts",
           "consecutive ones without a newer checkpoint", {.min = 0})
      .add(&Own::crash_restarts, "crash-restarts",
           "those after a rank crashed or ran out of memory", {.min = 0});
}

OptionTable<RestartArguments> restart_options() {
  using Own = RestartArguments;
  OptionTable<RestartArguments> table;
  add_end(table);
  add_limits(table);
  table.group("Result")
      .add(&Own::values, "values", "print lines NAME=VALUE")
      .add(&Own::record, "record", "count the restart in RUN_DIR/restarts, if it is allowed")
      .add(&Own::in_job, "in-job", "it is one within the job; frees the lock of the job's ranks")
      .add(&Own::left_out, "left-out", "hosts that it leaves out")
      .add(&Own::named, "named", "hosts that the logs named");
  table.group("Fewer ranks")
      .add(&Own::ranks, "ranks",
           "print the global batch that a run without a checkpoint has on so many ranks with "
           "the options below; nothing if there is one, since a resumed run keeps its own",
           {.min = 1, .defaults = "none"})
      .add(&Own::config, train_options(),
           {{.name = "batch-size"}, {.name = "global-batch-size"}, {.name = "accumulate"}});
  return table;
}

/// Error(usage) if a word of the record has a blank, which separates words.
void require_words(const char* option, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const bool is_word = !word.empty() && std::ranges::all_of(word, [](char c) {
      return static_cast<unsigned char>(c) > ' ' && c != '\x7F';
    });
    if (is_word) continue;
    fail(ExitStatus::usage, "--{} has '{}' (a name has no blanks); correct it", option, word);
  }
}

/// What both calls of a job script, the second with --record, decide from.
struct Ending {
  OpenDirectory run;
  std::string job;
  std::string checkpoint;
  std::vector<RestartRecord> restarts;
  RestartDecision decision;
};

Ending examine(const std::string& path, const RestartArguments& arguments) {
  Ending ending{.run = OpenDirectory(path),
                .job = arguments.job,
                .checkpoint = {},
                .restarts = {},
                .decision = {}};
  if (ending.job.empty()) ending.job = environment_variable("SLURM_JOB_ID").value_or("none");
  require_words("job", {ending.job});
  ending.checkpoint = latest_checkpoint(ending.run / "checkpoints");
  if (ending.checkpoint.empty()) ending.checkpoint = "none";
  ending.restarts = read_restarts(ending.run);
  ending.decision = decide_restart(
      {.status = static_cast<int>(arguments.status),
       .requires_logged_end = arguments.require_end,
       .asked_to_stop = arguments.asked_to_stop,
       .out_of_memory = arguments.out_of_memory,
       .preempted = arguments.preempted,
       .relaunch = arguments.relaunched,
       .logged = logged_end(ending.run, static_cast<std::uint64_t>(arguments.log_bytes))},
      {.restarts = arguments.max_restarts,
       .stalled = arguments.stalled_restarts,
       .crashes = arguments.crash_restarts},
      count_restarts(ending.restarts, ending.job, ending.checkpoint), ending.checkpoint);
  return ending;
}

void print_hosts(const Ending& ending, const std::string& since) {
  const NamedHosts hosts = named_hosts(ending.run, since);
  std::vector<std::string> repeated;
  for (const std::string& host : hosts.suspect) {
    if (was_named(ending.restarts, ending.job, host)) repeated.push_back(host);
  }
  print_out("unreachable={}\n", fmt::format("{}", fmt::join(hosts.unreachable, ",")));
  print_out("suspect={}\n", fmt::format("{}", fmt::join(hosts.suspect, ",")));
  print_out("repeated={}\n", fmt::format("{}", fmt::join(repeated, ",")));
  print_out("slow={}\n", fmt::format("{}", fmt::join(hosts.slow, ",")));
}

void print_answer(const Ending& ending, const RestartArguments& arguments) {
  const RestartDecision& decision = ending.decision;
  const bool allowed = decision.refusal.empty();
  const std::string& verdict = allowed ? decision.progress : decision.refusal;
  if (!arguments.values) {
    print_out("{}: status {}{}\n", allowed ? "yes" : "no", decision.status, verdict);
    return;
  }
  const auto mark = [](bool applies) { return applies ? "1" : ""; };
  print_out("status={}\nallowed={}\nverdict={}\n", decision.status, mark(allowed), verdict);
  print_out("resumes={}\nunlogged={}\nmay_lack_memory={}\nin_job={}\n", mark(decision.resumes),
            mark(decision.unlogged), mark(may_lack_memory(decision.status)), mark(decision.in_job));
  if (decision.in_job && !arguments.since.empty()) print_hosts(ending, arguments.since);
}

void record(const std::string& path, const Ending& ending, const RestartArguments& arguments) {
  require_words("left-out", arguments.left_out);
  require_words("named", arguments.named);
  make_directories(path, "check its permissions");
  const OpenDirectory run(path);
  append_restart(run,
                 {.job = ending.job,
                  .status = ending.decision.status,
                  .checkpoint = ending.checkpoint,
                  .time = fmt::format("{:%Y-%m-%dT%H:%M:%S}", fmt::localtime(std::time(nullptr))),
                  .crashed = ending.decision.crashed,
                  .unlogged = ending.decision.unlogged,
                  .preempted = arguments.preempted,
                  .in_job = arguments.in_job,
                  .left_out = arguments.left_out,
                  .named = arguments.named});
  if (arguments.in_job) free_lock_of(run / "lock", job_name());
}

void print_global_batch(const std::string& path, const RestartArguments& arguments) {
  if (!latest_checkpoint(OpenDirectory(path) / "checkpoints").empty()) return;
  print_out("{}\n", new_global_batch(arguments.config, arguments.ranks));
}

}  // namespace

ExitStatus run_restart(Invocation& invocation) {
  if (prints_help(invocation, restart_options(),
                  "usage: lockstep restart RUN_DIR --status N [options]\n"
                  "       lockstep restart RUN_DIR --ranks N [options]\n\n"
                  "Decides whether a run whose ranks have ended may start again, by the launcher's "
                  "status,\n"
                  "the ranks' logs and the earlier restarts. For job scripts: prints the answer as "
                  "one line\n"
                  "and exits with 0 (yes) or 1 (no).\n")) {
    return ExitStatus::ok;
  }
  const auto parsed = restart_options().parse(invocation.arguments, /*allow_positional=*/true);
  const RestartArguments& arguments = parsed.value;
  const std::string& path = only_argument(parsed.positional, "restart", "run directory");
  if (parsed.given.contains("status") == parsed.given.contains("ranks")) {
    fail(ExitStatus::usage,
         "restart takes --status or --ranks (each asks one question); see lockstep restart --help");
  }
  if (parsed.given.contains("ranks")) {
    print_global_batch(path, arguments);
    return ExitStatus::ok;
  }
  const Ending ending = examine(path, arguments);
  const bool allowed = ending.decision.refusal.empty();
  if (allowed && arguments.record) record(path, ending, arguments);
  print_answer(ending, arguments);
  return allowed ? ExitStatus::ok : ExitStatus::unfit;
}

}  // namespace lockstep::cli
