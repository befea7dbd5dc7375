#include "command.hpp"

#include <algorithm>
#include <array>

namespace lockstep::cli {

std::span<const Command> commands() {
  static constexpr std::array all{
      Command{.name = "train",
              .summary = "train a network; resumes where an earlier job stopped",
              .run = run_train},
      Command{.name = "eval",
              .summary = "compute the loss and accuracy of a checkpoint",
              .run = run_eval},
      Command{.name = "pack",
              .summary = "make shards of images in folders or tar archives, MNIST or CIFAR",
              .run = run_pack},
      Command{.name = "inspect",
              .summary = "show what a shard, data set, checkpoint, run or model holds",
              .run = run_inspect},
      Command{.name = "export",
              .summary = "write a checkpoint's model for PyTorch, safetensors or ONNX",
              .run = run_export},
      Command{
          .name = "watch", .summary = "show a run in the terminal while it runs", .run = run_watch},
      Command{.name = "report",
              .summary = "write a page with the curves, times and options of runs",
              .run = run_report},
      Command{.name = "compare",
              .summary = "print the options in which runs differ, and their final figures",
              .run = run_compare},
      Command{.name = "sweep",
              .summary = "list the runs of a file of options: finished, or to run",
              .run = run_sweep},
      Command{.name = "restart",
              .summary = "decide whether a run that ended may start again; for job scripts",
              .run = run_restart},
      Command{.name = "export-metrics",
              .summary = "print the metrics of a run as CSV",
              .run = run_export_metrics},
      Command{.name = "bench",
              .summary = "measure one of step, ops, allreduce, loader and checkpoint",
              .run = run_bench},
      Command{
          .name = "scale", .summary = "predict the time of a step on a cluster", .run = run_scale},
      Command{.name = "doctor",
              .summary = "check that this allocation is fit to train; say what to fix",
              .run = run_doctor},
  };
  return all;
}

namespace {

std::vector<std::string>::const_iterator find_help(const std::vector<std::string>& arguments) {
  return std::ranges::find_if(arguments, [](const std::string& argument) {
    return argument == "--help" || argument == "-h";
  });
}

}  // namespace

bool wants_help(const std::vector<std::string>& arguments) {
  return find_help(arguments) != arguments.end();
}

bool wants_all_help(const std::vector<std::string>& arguments) {
  const auto help = find_help(arguments);
  return help != arguments.end() && help + 1 != arguments.end() && *(help + 1) == "all";
}

const std::string& only_argument(const std::vector<std::string>& positional, const char* command,
                                 const char* what) {
  if (positional.size() != 1) {
    fail(ExitStatus::usage, "{0} takes one {1} ({2} are given); see lockstep {0} --help", command,
         what, positional.size());
  }
  return positional.front();
}

void print_json(const Json& json) {
  print_out("{}\n", json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace));
}

}  // namespace lockstep::cli
