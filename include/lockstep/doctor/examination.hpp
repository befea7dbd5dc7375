#pragma once

#include "lockstep/doctor/judge.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::doctor {

struct ExaminationOptions {
  std::string data;     ///< empty: not checked
  std::string run_dir;  ///< empty: not checked
  std::string model;    ///< model whose checkpoints go to run_dir
  std::uint64_t checkpoint_bytes = 0;
  std::int64_t kept = 0;                                           ///< checkpoints kept at once
  std::chrono::duration<double> limit = std::chrono::seconds(60);  ///< per answer
  std::string interface;     ///< --watchdog-interface; empty: all
  LaunchFacts launch;        ///< of this process
  double start_seconds = 0;  ///< time that MPI took to start
};

struct Diagnosis {
  std::vector<Finding> findings;  ///< on rank 0; empty on other ranks
  bool fit = true;                ///< nothing would stop a run; the same on all ranks
  bool all_reached = true;        ///< false: MPI cannot be finalized; end the job
};

/// Measures and judges what a run needs of processes, network and storage. All ranks must call it
/// after MPI has started. No check waits for a rank longer than a few limits, except two MPI
/// collectives before NCCL starts, right after all ranks have answered. Rank 0's own GPU driver has
/// no limit. If it throws, MPI cannot be finalized: end the job.
[[nodiscard]] Diagnosis examine(const ExaminationOptions& options);

}  // namespace lockstep::doctor
