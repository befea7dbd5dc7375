#include "command.hpp"

#include <algorithm>
#include <array>

namespace lockstep::cli {

std::span<const Command> commands() {
  static constexpr std::array all{
      Command{.name = "pack",
              .summary = "make shards of MNIST, CIFAR or image folders",
              .run = run_pack},
      Command{.name = "inspect",
              .summary = "what a shard, data set, checkpoint, run or model holds",
              .run = run_inspect},
  };
  return all;
}

bool wants_help(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const std::string& argument) {
    return argument == "--help" || argument == "-h";
  });
}

}  // namespace lockstep::cli
