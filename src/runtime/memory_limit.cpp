#include "lockstep/runtime/memory_limit.hpp"

#include "lockstep/core/address_space.hpp"
#include "lockstep/core/parse_number.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

namespace lockstep {
namespace {

/// Address space that oneDNN's code, buffers of the loader and of HDF5 and helper threads take
/// after a run has asked for its limits: 50 to 85 MiB measured, from mini-resnet to resnet152.
constexpr std::uint64_t library_bytes = std::uint64_t{96} << 20;

/// Values of lines such as "VmSize:  1234 kB" by name, in bytes.
std::map<std::string, std::uint64_t> read_table(const std::string& path) {
  std::map<std::string, std::uint64_t> table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    std::istringstream rest(line.substr(colon + 1));
    std::uint64_t kib = 0;
    if (rest >> kib) table[line.substr(0, colon)] = kib << 10;
  }
  return table;
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;  // "max" means no limit
  return std::nullopt;
}

std::uint64_t left_of(std::uint64_t limit, std::uint64_t used) noexcept {
  return limit - std::min(limit, used);
}

/// What a group uses and cannot give back: of its processes, and of files in memory.
std::uint64_t used_by_group(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  std::uint64_t sum = 0;
  std::string name;
  for (std::uint64_t value = 0; file >> name >> value;) {
    if (name == "anon" || name == "shmem" || name == "total_rss" || name == "total_shmem") {
      sum += value;
    }
  }
  return sum;
}

enum class Part { whole, left };

/// The smallest limit of a group and its parents, or what is left of it; a missing file means no
/// limit.
std::optional<std::uint64_t> smallest_limit(const std::string& root, std::string group,
                                            const char* file, Part part) {
  std::optional<std::uint64_t> smallest;
  for (;;) {
    const std::string folder = root + group;
    auto limit = read_number(folder + "/" + file);
    if (limit && part == Part::left) limit = left_of(*limit, used_by_group(folder));
    if (limit && (!smallest || *limit < *smallest)) smallest = limit;
    if (group.empty()) return smallest;
    group.resize(group.rfind('/'));
  }
}

/// Limit of the group in a line such as "0::/slurm/job_7" or "4:memory:/slurm/job_7".
std::optional<std::uint64_t> group_limit(const std::string& line, const std::string& cgroups,
                                         Part part = Part::whole) {
  const std::size_t first = line.find(':');
  const std::size_t second = line.find(':', first + 1);
  if (first == std::string::npos || second == std::string::npos) return std::nullopt;
  const std::string controllers = line.substr(first + 1, second - first - 1);
  std::string group = line.substr(second + 1);
  if (group == "/" || !group.starts_with('/')) group.clear();
  if (controllers.empty()) return smallest_limit(cgroups, group, "memory.max", part);
  if (controllers != "memory") return std::nullopt;
  return smallest_limit(cgroups + "/memory", group, "memory.limit_in_bytes", part);
}

/// Slurm's limit for the job on this node; nullopt: none, or no job.
std::optional<MemoryLimit> slurm_limit(const NodeProcesses& processes) {
  const auto number = [&](const char* name) -> std::uint64_t {
    const auto text = processes.lookup ? processes.lookup(name) : std::nullopt;
    const auto value = text ? parse_number<std::uint64_t>(*text) : std::nullopt;
    return value && *value < (std::uint64_t{1} << 40) ? *value : 0;
  };
  if (number("SLURM_JOB_ID") == 0) return std::nullopt;
  const std::uint64_t whole = number("SLURM_MEM_PER_NODE");
  const std::uint64_t cores = number("SLURM_MEM_PER_CPU") * number("SLURM_CPUS_ON_NODE");
  if (whole == 0 && cores == 0) return std::nullopt;
  return MemoryLimit{.bytes = (whole != 0 ? whole : cores) << 20,
                     .source = whole != 0 ? "SLURM_MEM_PER_NODE" : "SLURM_MEM_PER_CPU"};
}

}  // namespace

std::vector<MemoryLimit> memory_left(int local_size, const std::string& proc,
                                     const std::string& cgroups) {
  auto own = read_table(proc + "/self/status");
  std::vector<MemoryLimit> limits;
  if (const auto limit = address_space_limit()) {
    limits.push_back({.bytes = left_of(limit->left(), library_bytes), .source = limit->source});
  }
  const int processes = std::max(local_size, 1);
  const auto share = [processes](std::uint64_t bytes) {
    return bytes / static_cast<std::uint64_t>(processes);
  };
  std::ifstream groups(proc + "/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (const auto of_group = group_limit(line, cgroups)) {
      limits.push_back({.bytes = left_of(share(*of_group), own["VmRSS"]),
                        .source = "the control group",
                        .processes = processes});
    }
  }
  auto node = read_table(proc + "/meminfo");
  if (node.contains("MemAvailable")) {
    limits.push_back({.bytes = share(node["MemAvailable"] + node["SwapFree"]),
                      .source = "the node",
                      .processes = processes});
  }
  return limits;
}

std::vector<MemoryLimit> node_memory_left(const NodeProcesses& processes, const std::string& proc,
                                          const std::string& cgroups) {
  std::vector<MemoryLimit> limits;
  std::ifstream groups(proc + "/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (const auto of_group = group_limit(line, cgroups, Part::left)) {
      limits.push_back({.bytes = *of_group, .source = "the control group"});
    }
  }
  if (auto slurm = slurm_limit(processes)) {
    const auto count = static_cast<std::uint64_t>(std::max(processes.count, 1));
    slurm->bytes = left_of(slurm->bytes, count * read_table(proc + "/self/status")["VmRSS"]);
    limits.push_back(*slurm);
  }
  auto node = read_table(proc + "/meminfo");
  if (node.contains("MemAvailable")) {
    limits.push_back({.bytes = node["MemAvailable"], .source = "the node"});
  }
  return limits;
}

std::int64_t peak_resident_bytes() noexcept {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace lockstep
