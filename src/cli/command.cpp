#include "command.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

bool wants_help(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--help" || argument == "-h";
  });
}

void print_json(const nlohmann::ordered_json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace lockstep::cli
