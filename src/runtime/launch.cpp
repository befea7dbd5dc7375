#include "lockstep/runtime/launch.hpp"

#include "lockstep/core/parse_number.hpp"
#include "lockstep/core/units.hpp"
#include "lockstep/runtime/sockets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace lockstep {
namespace {

using Launcher = LaunchFacts::Launcher;

/// Slurm's own steps (of the batch script, of salloc's shell, ...) have the largest numbers.
constexpr std::uint32_t first_step_of_slurms_own = 0xfffffff0;
/// PROC_PID_INIT_INO of Linux.
constexpr const char* outermost_process_namespace = "pid:[4026531836]";

template <typename Number = int>
std::optional<Number> number_of(const VariableLookup& lookup, const char* name) {
  const auto text = lookup(name);
  return text ? parse_number<Number>(*text) : std::nullopt;
}

/// 0 for what is no file.
int lines_in(const std::string& path) {
  std::error_code absent;
  if (!std::filesystem::is_regular_file(path, absent)) return 0;
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

/// Sets the number of tasks for which the job asked, if its scheduler tells.
void read_allocation(const VariableLookup& lookup, LaunchFacts& facts) {
  const auto number = [&](const char* name) { return number_of(lookup, name); };
  const auto found = [&](int tasks, const char* by) {
    facts.allocated = tasks;
    facts.allocated_by = by;
  };
  if (lookup("SLURM_HET_SIZE")) return;
  // The job scripts leave out spare nodes, and say how many ranks they start.
  if (const auto ranks = number("LOCKSTEP_RANKS")) return found(*ranks, "LOCKSTEP_RANKS");
  if (const auto tasks = number("SLURM_NTASKS")) return found(*tasks, "SLURM_NTASKS");
  if (const auto nodes = number("SLURM_JOB_NUM_NODES")) {
    return found(*nodes * number("SLURM_NTASKS_PER_NODE").value_or(1), "SLURM_JOB_NUM_NODES");
  }
  // Only on the job's first node, where rank 0 runs.
  if (const auto file = lookup("PBS_NODEFILE")) {
    if (const int slots = lines_in(*file); slots > 0) found(slots, "PBS_NODEFILE");
  }
}

struct Process {
  std::string name;
  int parent = 0;
};

/// From /proc/PID/stat: "17 (name) S 1 ...".
std::optional<Process> read_process(const std::string& proc, const std::string& pid) {
  std::ifstream file(fmt::format("{}/{}/stat", proc, pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const std::size_t begin = line.find('(');
  const std::size_t end = line.rfind(')');
  if (begin == std::string::npos || end == std::string::npos || line.size() < end + 5) {
    return std::nullopt;
  }
  const std::string rest = line.substr(end + 4);
  const auto parent = parse_number<int>(rest.substr(0, rest.find(' ')));
  if (!parent) return std::nullopt;
  return Process{.name = line.substr(begin + 1, end - begin - 1), .parent = *parent};
}

bool is_launcher(std::string_view name) {
  constexpr std::array beginnings{"mpi",  "orte",  "prte",   "prun",   "hydra", "slurmstepd",
                                  "srun", "flux",  "pals",   "apinit", "js",    "pmi",
                                  "psid", "aprun", "plexec", "ibrun"};
  return std::ranges::any_of(beginnings,
                             [&](const char* beginning) { return name.starts_with(beginning); });
}

/// Address of "NAMESPACE.0;tcp4://127.0.0.1:40001"; nullopt for other forms.
std::optional<SocketAddress> address_in(const std::string& uri) {
  constexpr std::string_view scheme = ";tcp4://";
  const std::size_t begin = uri.find(scheme);
  const std::size_t colon = uri.find(':', begin + scheme.size());
  if (begin == std::string::npos || colon == std::string::npos) return std::nullopt;
  const std::size_t host = begin + scheme.size();
  const std::size_t end = uri.find_first_not_of("0123456789", colon + 1);
  const auto port = parse_number<std::uint16_t>(uri.substr(colon + 1, end - colon - 1));
  return port ? parse_address(uri.substr(host, colon - host), *port) : std::nullopt;
}

/// Whether this node refuses connections to the address. A server would take one for a client that
/// says nothing, so the port is bound instead: a listening server holds it.
bool is_free(const SocketAddress& address) {
  const Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address.storage),
                          address.size) == 0;
}

}  // namespace

LaunchFacts read_launch(const VariableLookup& lookup) {
  const auto number = [&](const char* name) { return number_of(lookup, name); };
  LaunchFacts facts{.node = lookup("SLURMD_NODENAME").value_or("")};
  const auto step = number_of<std::uint32_t>(lookup, "SLURM_STEP_ID");
  const bool in_step = step && *step < first_step_of_slurms_own;
  // Open MPI's daemons on other nodes run in a separate Slurm step, so mpirun is checked first.
  for (const auto& [size, rank, local] :
       {std::array{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
        std::array{"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"}}) {
    if (!number(size)) continue;
    // srun also sets PMI_SIZE, with --mpi=pmi2; Hydra, whose proxies srun starts, the local rank.
    if (in_step && std::string_view(size) == "PMI_SIZE" && !number(local)) continue;
    facts.launcher = Launcher::mpirun;
    facts.started = number(size);
    facts.process = number(rank).value_or(0);
    facts.local_process = number(local).value_or(0);
    if (!in_step) read_allocation(lookup, facts);
    return facts;
  }
  if (in_step) {
    facts.launcher = Launcher::srun;
    const auto of_step = number("SLURM_STEP_NUM_TASKS");
    // A part of a heterogeneous step counts only its own tasks.
    if (!lookup("SLURM_HET_SIZE")) facts.started = of_step ? of_step : number("SLURM_NTASKS");
    facts.process = number("SLURM_PROCID").value_or(0);
    facts.local_process = number("SLURM_LOCALID").value_or(0);
    return facts;
  }
  read_allocation(lookup, facts);
  return facts;
}

LaunchFacts launch_of_this_process() {
  LaunchFacts facts = read_launch(environment_variable);
  facts.left_over = facts.launcher != Launcher::none && has_launcher_parent() == false;
  return facts;
}

const char* launcher_text(Launcher launcher) noexcept {
  constexpr std::array texts{"no launcher", "srun", "mpirun"};
  return texts[static_cast<std::size_t>(launcher)];
}

const char* launch_advice(Launcher launcher) noexcept {
  constexpr std::array advice{
      "start with srun --mpi=pmix or mpirun",
      "start with srun --mpi=pmix (srun --mpi=list shows what Slurm has), or with the mpirun of "
      "the MPI this program was built with",
      "start with the mpirun of the MPI this program was built with (lockstep bench and ldd show "
      "which), or with srun --mpi=pmix"};
  return advice[static_cast<std::size_t>(launcher)];
}

std::optional<LaunchProblem> judge_launch(const LaunchFacts& launch, int ranks,
                                          const std::string& library) {
  const auto count = [](int number, const char* what) {
    return count_text(static_cast<std::size_t>(number), what);
  };
  const char* const launcher = launcher_text(launch.launcher);
  if (launch.launcher != Launcher::none && launch.started && *launch.started != ranks) {
    if (launch.left_over) {
      return LaunchProblem{
          .text = fmt::format(
              "MPI sees {} where variables in the environment are of process {} of {} by {} (no "
              "launcher is among this process's parents, so they are left over in this shell); {}",
              count(ranks, "rank"), launch.process, *launch.started, launcher,
              launch_advice(Launcher::none))};
    }
    return LaunchProblem{
        .is_certain = true,
        .text =
            fmt::format("MPI sees {} where {} started {} ({} and this program's MPI, {}, do not "
                        "share a PMI, so {}); {}",
                        count(ranks, "rank"), launcher, *launch.started, launcher, library,
                        ranks == 1 ? "each process is a world of its own" : "the count is wrong",
                        launch_advice(launch.launcher))};
  }
  if (!launch.allocated || *launch.allocated == ranks) return std::nullopt;
  const std::string& by = launch.allocated_by;
  if (ranks > *launch.allocated && by != "SLURM_NTASKS") return std::nullopt;
  if (launch.launcher == Launcher::none && ranks == 1 && *launch.allocated > 1) {
    return LaunchProblem{
        .is_certain = true,
        .text = fmt::format(
            "MPI sees 1 rank where {}'s count is {} ({}; no launcher that this program's MPI, {}, "
            "knows has started it, so each process is a world of its own); {}",
            by == "PBS_NODEFILE" ? "PBS" : "Slurm", *launch.allocated, by, library,
            by == "PBS_NODEFILE" ? "start with mpirun" : launch_advice(launch.launcher))};
  }
  if (launch.launcher == Launcher::none) return std::nullopt;
  return LaunchProblem{.text =
                           fmt::format("mpirun started {} where the allocation is of {} ({}); "
                                       "leave out mpirun's -n, or ask for {}",
                                       count(ranks, "rank"), count(*launch.allocated, "task"), by,
                                       by == "PBS_NODEFILE" ? count(ranks, "slot")
                                                            : fmt::format("--ntasks={}", ranks))};
}

std::optional<bool> has_launcher_parent(const std::string& proc) {
  constexpr int most_parents = 1000;  // against a circle
  auto process = read_process(proc, "self");
  for (int i = 0; process && i < most_parents; ++i) {
    if (process->parent <= 0) {
      // In a container, the launcher may be outside.
      std::error_code unknown;
      const bool is_outermost = std::filesystem::read_symlink(proc + "/self/ns/pid", unknown) ==
                                outermost_process_namespace;
      return is_outermost ? std::optional(false) : std::nullopt;
    }
    process = read_process(proc, std::to_string(process->parent));
    if (process && is_launcher(process->name)) return true;
  }
  return std::nullopt;
}

std::string ended_launcher(std::span<const char* const> variables) {
  constexpr std::string_view beginning = "PMIX_SERVER_URI";
  std::string ended;
  for (const char* const variable : variables) {
    const std::string text(variable);
    if (!text.starts_with(beginning)) continue;
    const auto address = address_in(text);
    if (!address || !is_free(*address)) return {};
    ended = text;
  }
  return ended;
}

}  // namespace lockstep
