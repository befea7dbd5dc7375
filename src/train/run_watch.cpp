#include "run_watch.hpp"

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/watched_communicator.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

namespace lockstep {
namespace {

/// Whether a debugger holds this process.
bool is_traced() {
  std::ifstream status("/proc/self/status");
  const std::string name = "TracerPid:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoi(line.substr(name.size())) != 0;
  }
  return false;
}

/// The name that Slurm's --exclude takes, where Slurm started this process.
std::string node_name(const ProcessGrid& grid) {
  const char* name = std::getenv("SLURMD_NODENAME");
  return name != nullptr && *name != '\0' ? name : grid.host;
}

}  // namespace

RunWatch::RunWatch(const Config& config, const TrainingJob& job) {
  if (config.debug_collectives && job.comm.size() > 1) {
    comparison_ = std::make_unique<CollectiveComparison>(make_mpi_communicator(),
                                                         [this] { return board_.read().step; });
  }
  comm_ = &watched(job.comm, "the host's");
  wait_for_debugger(config, job);
  hosts_ = all_gather_text(job.comm, node_name(job.grid));
  const bool rests = config.wait_for_debugger >= 0;
  watchdog_.emplace(
      job.comm, job.grid, board_,
      WatchdogOptions{.limit = std::chrono::duration<double>(rests ? 0 : config.watchdog_seconds),
                      .cores = job.binding.allowed});
  name_devices("");
}

RunWatch::~RunWatch() = default;

Communicator& RunWatch::watched(Communicator& inner, const char* name) {
  if (&inner == comm_) return inner;
  Communicator* top = &inner;
  if (comparison_) {
    top =
        layers_.emplace_back(std::make_unique<CheckedCommunicator>(*top, *comparison_, name)).get();
  }
  return *layers_.emplace_back(std::make_unique<WatchedCommunicator>(*top, board_));
}

void RunWatch::name_devices(const std::string& mine) {
  const std::vector<std::string> devices = all_gather_text(*comm_, mine);
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
    names.push_back(fmt::format("rank {} ({}{}{})", rank, hosts_[rank],
                                devices[rank].empty() ? "" : ", ", devices[rank]));
  }
  watchdog_->name_ranks(std::move(names));
}

void RunWatch::wait_for_debugger(const Config& config, const TrainingJob& job) {
  if (config.wait_for_debugger < 0) return;
  if (config.wait_for_debugger >= job.grid.world_size) {
    fail(ExitStatus::usage,
         "--wait-for-debugger {} names no rank (there are {}, from 0) give a smaller one",
         config.wait_for_debugger, job.grid.world_size);
  }
  if (job.grid.rank == config.wait_for_debugger) {
    board_.enter(Phase::debugger);
    fmt::print(
        stderr,
        "rank {} on {} waits for a debugger: gdb -p {}, then continue (the watchdog rests)\n",
        job.grid.rank, job.grid.host, ::getpid());
    while (!is_traced()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  job.comm.barrier();
  board_.enter(Phase::start_up);
}

}  // namespace lockstep
