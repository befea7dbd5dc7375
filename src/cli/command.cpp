#include "command.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace lockstep::cli {

std::span<const Command> commands() {
  static constexpr std::array all{
      Command{.name = "train",
              .summary = "train; goes on by itself where it stopped",
              .run = run_train},
      Command{.name = "eval", .summary = "loss and accuracy of a checkpoint", .run = run_eval},
      Command{.name = "pack",
              .summary = "make shards of MNIST, CIFAR or image folders",
              .run = run_pack},
      Command{.name = "inspect",
              .summary = "what a shard, data set, checkpoint, run or model holds",
              .run = run_inspect},
      Command{.name = "bench",
              .summary = "one measured table: step, ops, allreduce, loader or checkpoint",
              .run = run_bench},
      Command{.name = "doctor",
              .summary = "is this allocation fit to train? what to fix",
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
