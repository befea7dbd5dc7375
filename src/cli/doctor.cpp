#include "command.hpp"
#include "lockstep/cli/job.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/doctor/examination.hpp"
#include "lockstep/doctor/start_watch.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "model_options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <thread>

namespace lockstep::cli {
namespace {

using doctor::Finding;
using doctor::Verdict;

/// The options of train that doctor shares.
Config examined_config() {
  Config config;
  config.image_size = 224;
  config.channels = 3;
  config.classes = 1000;
  return config;
}

struct DoctorArguments {
  Config config = examined_config();
  double timeout = 60;
  bool json = false;
};

OptionTable<DoctorArguments> doctor_options() {
  const OptionTable<Config>& train = train_options();
  OptionTable<DoctorArguments> table;
  table.group("Storage").add(
      &DoctorArguments::config, train,
      {{.name = "data", .help = "directory of shards; empty: not checked"},
       {.name = "run-dir", .help = "the run's directory; empty: not checked"},
       {.name = "keep"}});
  table.group("Model, for the size of a checkpoint")
      .add(&DoctorArguments::config, train,
           {{.name = "model"},
            {.name = "width"},
            {.name = "image-size", .help = "height and width of the network's input", .min = 1},
            {.name = "channels", .help = "image channels", .min = 1},
            {.name = "classes", .help = "outputs of the network", .min = 1},
            {.name = "optimizer"},
            {.name = "ema-decay"}});
  table.group("Network").add(
      &DoctorArguments::config, train,
      {{.name = "watchdog-interface",
        .help = "network of the run's watchdog, of which each node is tried: as for train"}});
  table.group("How")
      .add(&DoctorArguments::timeout, "timeout",
           "limit for MPI to start, and for each answer of a rank",
           {.unit = "seconds", .min = 0, .max = 86400, .above_min = true})
      .add(&DoctorArguments::json, "json", "print one JSON object");
  return table;
}

/// Size of a checkpoint: parameters, running statistics and optimizer state, in fp32.
std::uint64_t checkpoint_bytes(const Config& config) {
  const Graph graph = described_model(config);
  const std::uint64_t copies = 1 + slot_count(config);
  // Allowance for running statistics, names and attributes, which are small.
  constexpr std::uint64_t rest = std::uint64_t{1} << 20;
  return static_cast<std::uint64_t>(graph.parameter_count()) * sizeof(float) * copies + rest;
}

const char* verdict_text(Verdict verdict) {
  constexpr std::array names{"ok", "warn", "fail"};
  return names[static_cast<std::size_t>(verdict)];
}

/// `not_checked` names missing options whose checks were skipped.
void print_findings(const std::vector<Finding>& findings,
                    const std::vector<std::string>& not_checked, const DoctorArguments& arguments) {
  const auto failures = std::count_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Verdict::fail;
  });
  if (arguments.json) {
    Json checks = Json::array();
    for (const Finding& finding : findings) {
      Json values = Json::object();
      for (const auto& [name, value] : finding.values) values[name] = value;
      checks.push_back({{"check", finding.check},
                        {"verdict", verdict_text(finding.verdict)},
                        {"text", finding.text},
                        {"values", std::move(values)}});
    }
    print_json(
        {{"fit", failures == 0}, {"checks", std::move(checks)}, {"not_checked", not_checked}});
    return;
  }
  for (const Finding& finding : findings) {
    print_out("{:<5} {:<11} {}\n", verdict_text(finding.verdict), finding.check, finding.text);
  }
  if (!not_checked.empty()) print_out("not checked: {}\n", fmt::join(not_checked, ", "));
  if (failures == 0) {
    print_out("fit to train\n");
  } else {
    print_out("not fit to train: {} thing{} would stop a run\n", failures,
              failures == 1 ? "" : "s");
  }
}

/// Reports that MPI did not start: on one process per node, or with --json on one in total.
void report_start(const LaunchFacts& launch, const DoctorArguments& arguments,
                  const std::string& what) {
  const bool is_one_of_many = !launch.left_over && launch.local_process != 0;
  if (is_one_of_many || (arguments.json && launch.process != 0)) {
    // The launcher kills all processes when the first one exits, so let a printing one exit first.
    constexpr auto courtesy = std::chrono::seconds(2);
    std::this_thread::sleep_for(courtesy);
    return;
  }
  print_findings(
      {doctor::judge_start(launch, launch.node.empty() ? host_name() : launch.node, what)}, {},
      arguments);
}

/// Aborts the job, since MPI_Finalize would wait for ranks that do not answer.
[[noreturn]] void leave(bool is_first) {
  std::fflush(nullptr);
  // A launcher may drop output that it has not forwarded yet when a rank aborts.
  constexpr auto forwarding = std::chrono::milliseconds(500);
  constexpr auto courtesy = std::chrono::seconds(10);
  std::this_thread::sleep_for(is_first ? forwarding : std::chrono::milliseconds(courtesy));
  abort_job(static_cast<int>(ExitStatus::unfit));
}

doctor::Diagnosis examine(const doctor::ExaminationOptions& options) {
  try {
    return doctor::examine(options);
  } catch (const std::exception& error) {
    // The other ranks wait for this rank's message, and MPI_Finalize would wait for them.
    print_error(fmt::format(
        "the examination failed on {} ({}); check the limits of that node: processes, memory",
        host_name(), error.what()));
    std::fflush(nullptr);
    abort_job(static_cast<int>(ExitStatus::internal));
  }
}

}  // namespace

ExitStatus run_doctor(Invocation& invocation) {
  if (prints_help(
          invocation, doctor_options(),
          "usage: srun lockstep doctor [options]\n\n"
          "Checks that this allocation is fit to train, and says what to fix. Start it like the "
          "run\n"
          "itself. Prints one line per check: ok; warn if a run would be slower than it could be;\n"
          "fail if it would stop. The exit status is 1 after a fail, else 0.\n")) {
    return ExitStatus::ok;
  }
  const DoctorArguments arguments = doctor_options().parse(invocation.arguments).value;
  const Config& config = arguments.config;
  const std::uint64_t checkpoint = checkpoint_bytes(config);
  const LaunchFacts launch = launch_of_this_process();
  static_cast<void>(unset_missing_directories());

  const std::chrono::duration<double> limit(arguments.timeout);
  doctor::StartWatch watch(limit,
                           [&](const std::string& what) { report_start(launch, arguments, what); });
  if (watch.outcome()) return static_cast<ExitStatus>(*watch.outcome());
  const auto begin = std::chrono::steady_clock::now();
  const MpiEnvironment environment(invocation.argc, invocation.argv);
  watch.started();
  const std::chrono::duration<double> start = std::chrono::steady_clock::now() - begin;

  const doctor::Diagnosis diagnosis =
      examine({.data = config.data,
               .run_dir = config.run_dir,
               .model = config.model,
               .checkpoint_bytes = checkpoint,
               .kept = config.keep + 2,  // the best, and the one being written
               .limit = limit,
               .interface = config.watchdog_interface,
               .launch = launch,
               .start_seconds = start.count()});
  const bool is_first = !diagnosis.findings.empty();
  // If each process has its own MPI_COMM_WORLD, only the launcher's first process prints.
  if (is_first && (launch.process == 0 || launch.left_over)) {
    std::vector<std::string> not_checked;
    if (config.data.empty()) not_checked.emplace_back("--data");
    if (config.run_dir.empty()) not_checked.emplace_back("--run-dir");
    print_findings(diagnosis.findings, not_checked, arguments);
  }
  if (!diagnosis.all_reached) leave(is_first);
  return diagnosis.fit ? ExitStatus::ok : ExitStatus::unfit;
}

}  // namespace lockstep::cli
