#include "command.hpp"

#include <algorithm>

namespace lockstep::cli {

std::span<const Command> commands() {
  static constexpr Command all[] = {
      {"train", "train a network; resumes where an earlier job stopped", run_train},
      {"eval", "compute the loss and accuracy of a checkpoint", run_eval},
      {"pack", "make shards of images in folders or tar archives, MNIST or CIFAR", run_pack},
      {"inspect", "show what a shard, data set, checkpoint, run or model holds", run_inspect},
      {"export", "write a checkpoint's model for PyTorch, safetensors or ONNX", run_export},
      {"watch", "show a run in the terminal while it runs", run_watch},
      {"report", "write a page with the curves, times and options of runs", run_report},
      {"compare", "print the options in which runs differ, and their final figures", run_compare},
      {"sweep", "list the runs of a file of options: finished, or to run", run_sweep},
      {"restart", "decide whether a run that ended may start again; for job scripts", run_restart},
      {"export-metrics", "print the metrics of a run as CSV", run_export_metrics},
      {"bench", "measure step, ops, allreduce, loader, decode or checkpoint", run_bench},
      {"scale", "predict the time of a step on a cluster", run_scale},
      {"doctor", "check that this allocation is fit to train; say what to fix", run_doctor}};
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
