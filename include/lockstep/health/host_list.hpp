#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep {

/// "node3,node7": each host once, in the format of Slurm's --exclude, without the domain.
[[nodiscard]] inline std::string host_list(std::vector<std::string> hosts) {
  for (std::string& host : hosts) host.resize(std::min(host.find('.'), host.size()));
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  return fmt::format("{}", fmt::join(hosts, ","));
}

}  // namespace lockstep
