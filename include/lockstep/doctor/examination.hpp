#pragma once

#include "lockstep/doctor/facts.hpp"
#include "lockstep/doctor/finding.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::doctor {

struct ExaminationOptions {
  std::string data;     ///< empty: not looked at
  std::string run_dir;  ///< empty: not looked at
  std::string model;    ///< whose checkpoints go to run_dir
  std::uint64_t checkpoint_bytes = 0;
  std::int64_t kept = 0;                                           ///< checkpoints there at once
  std::chrono::duration<double> limit = std::chrono::seconds(60);  ///< for each answer
  LaunchFacts launch;                                              ///< this process's
  double start_seconds = 0;                                        ///< MPI took
};

struct Diagnosis {
  std::vector<Finding> findings;  ///< rank 0's; empty on the others
  bool fit = true;                ///< nothing would stop a run; the same on all ranks
  bool all_reached = true;        ///< else MPI cannot be finalized: end the job
};

/// What a run needs of the processes, the network and the storage, measured and judged. Every rank
/// calls it; MPI has started. No rank waits for another for longer than a few limits, but for two
/// collectives of MPI before NCCL starts, right after all ranks have answered. Rank 0's own GPU
/// driver has no limit. Where it throws, MPI cannot be finalized: end the job.
[[nodiscard]] Diagnosis examine(const ExaminationOptions& options);

}  // namespace lockstep::doctor
