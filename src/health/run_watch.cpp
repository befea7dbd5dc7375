#include "lockstep/health/run_watch.hpp"

#include "lockstep/comm/mesh.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/print.hpp"
#include "lockstep/runtime/traced_communicator.hpp"
#include "lockstep/runtime/watched_communicator.hpp"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

namespace lockstep {
namespace {

/// Whether a debugger is attached to this process.
bool is_traced() {
  std::ifstream status("/proc/self/status");
  const std::string name = "TracerPid:";
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name)) return std::stoi(line.substr(name.size())) != 0;
  }
  return false;
}

/// This host's name; under Slurm, the node name that --exclude takes.
std::string node_name(const ProcessGrid& grid) {
  const char* name = std::getenv("SLURMD_NODENAME");
  return name != nullptr && *name != '\0' ? name : grid.host;
}

}  // namespace

RunWatch::RunWatch(const Config& config, const WatchedJob& job, TraceRecorder* trace)
    : trace_(trace), hosts_(all_gather_text(job.comm, node_name(job.grid))) {
  if (config.debug_collectives && job.comm.size() > 1) {
    comparison_ = std::make_unique<CollectiveComparison>(
        make_mpi_communicator(), [this] { return board().read().step; }, hosts_);
  }
  comm_ = &watched(job.comm, "the host's");
  wait_for_debugger(config, job);
  const bool debugging = config.wait_for_debugger >= 0;
  const std::chrono::duration<double> limit(debugging ? 0 : config.watchdog_seconds);
  wait_limit_ = wait_limit_beside(limit);
  pair_->watchdog.emplace(job.comm, job.grid, board(),
                          WatchdogOptions{.limit = limit,
                                          .names = names({}),
                                          .cores = job.cores,
                                          .interface = config.watchdog_interface});
}

RunWatch::~RunWatch() = default;

Communicator& RunWatch::watched(Communicator& inner, const char* name, Callers callers) {
  if (&inner == comm_) return inner;
  Communicator* top = &inner;
  if (comparison_) {
    top =
        layers_
            .emplace_back(std::make_unique<CheckedCommunicator>(*top, *comparison_, name, callers))
            .get();
  }
  top = layers_.emplace_back(std::make_unique<WatchedCommunicator>(*top, board())).get();
  if (trace_ == nullptr) return *top;
  return *layers_.emplace_back(std::make_unique<TracedCommunicator>(*top, *trace_));
}

void RunWatch::compare_in_groups(int group_size) {
  if (!comparison_ || group_size == comm_->size()) return;
  comparison_->compare_in_groups(
      data_mesh(comm_->size(), group_size).ranks(comm_->rank(), {shard_axis}));
}

void RunWatch::name_devices(const std::string& mine) {
  watchdog().name_ranks(names(all_gather_text(*comm_, mine)));
}

std::vector<std::string> RunWatch::names(const std::vector<std::string>& devices) const {
  std::vector<std::string> names;
  for (std::size_t rank = 0; rank < hosts_.size(); ++rank) {
    const std::string device = rank < devices.size() ? devices[rank] : "";
    names.push_back(
        fmt::format("rank {} ({}{}{})", rank, hosts_[rank], device.empty() ? "" : ", ", device));
  }
  return names;
}

void RunWatch::wait_for_debugger(const Config& config, const WatchedJob& job) {
  if (config.wait_for_debugger < 0) return;
  if (config.wait_for_debugger >= job.grid.world_size) {
    fail(ExitStatus::usage,
         "--wait-for-debugger {} names no rank (there are {}, from 0); give a smaller one",
         config.wait_for_debugger, job.grid.world_size);
  }
  if (job.grid.rank == config.wait_for_debugger) {
    print_err("rank {} on {} waits for a debugger: gdb -p {}, then continue (watchdog disabled)\n",
              job.grid.rank, job.grid.host, ::getpid());
    while (!is_traced()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  job.comm.barrier();
}

}  // namespace lockstep
