#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace lockstep {

struct CommandResult {
  std::string output;         ///< standard output and error, at most 64 KiB
  std::optional<int> status;  ///< nullopt: did not start, killed, or ended after the limit
};

struct CommandOptions {
  /// Beginnings of names of variables that the command does not get.
  std::vector<std::string> without = {};
  std::chrono::milliseconds limit = std::chrono::seconds(20);
};

/// Runs a program from PATH without a shell. After the limit, or when a stop is requested, kills it
/// together with the processes that it started. Errors are in the output.
[[nodiscard]] CommandResult run_command(const std::vector<std::string>& words,
                                        const CommandOptions& options = {},
                                        const std::stop_token& stop = {});

}  // namespace lockstep
