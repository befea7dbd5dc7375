#pragma once

#include "lockstep/checkpoint/checkpoint_directory.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/health/phase_times.hpp"
#include "lockstep/health/step_times.hpp"
#include "lockstep/run/evaluation_result.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/start_clock.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Bytes that a rank needs, as planned before the first step.
struct PlannedMemory {
  std::size_t activations = 0;
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t copy = 0;  ///< the state copied for a save
};

/// What a job of the run has, besides the run's state.
struct StartReport {
  std::int64_t epoch_samples = 0;
  std::vector<ConfigDifference> changes;  ///< of options since the checkpoint
  std::vector<std::string> hosts;         ///< by rank
  std::string engine;
  std::string threads;  ///< text of the thread binding
  bool on_gpus = false;
  PlannedMemory memory;
  std::span<const StartClock::PhaseTime> phases = {};  ///< of the start
};

/// One step, over all ranks.
struct StepReport {
  std::int64_t step = 0;
  std::int64_t epoch = 0;          ///< the one the step belongs to
  std::int64_t step_of_epoch = 0;  ///< from 1
  std::int64_t samples = 0;        ///< total seen, including this step
  double loss = 0;
  MetricValues metrics = {};  ///< means of those of training
  double lr = 0;
  double gradient_norm = 0;
  PhaseTimes times;
  double images_per_second = 0;
};

/// One epoch, over all ranks, and this rank's own figures.
struct EpochReport {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t samples = 0;
  double loss = 0;
  MetricValues metrics = {};  ///< means of those of training
  double lr = 0;
  double own_loss = 0;  ///< this rank's mean
  double own_samples = 0;
  double seconds = 0;
  double images_per_second = 0;
  PhaseTimes times;
};

struct RunReporterOptions {
  std::string run_dir;
  const ProcessGrid& grid;
  std::string cores;  ///< text of the thread binding
  Progress progress = Progress::automatic;
  bool log_ranks = false;
  std::int64_t log_every = 50;
  std::int64_t epochs = 0;
  std::int64_t steps_per_epoch = 0;
  std::int64_t total_steps = 0;
  std::int64_t resumed_step = -1;  ///< drops metrics and events after it; -1: a fresh run
  /// Rank 0's: if it returns false, metrics and events belong to another job and are not written.
  /// May be empty.
  std::function<bool()> holds_directory = {};
};

/// All output of a run: metrics.jsonl, TensorBoard events and terminal on rank 0, a log on every
/// rank.
class RunReporter final {
 public:
  explicit RunReporter(const RunReporterOptions& options);
  ~RunReporter();
  RunReporter(const RunReporter&) = delete;
  RunReporter& operator=(const RunReporter&) = delete;

  /// A line for the user, on rank 0's terminal and in this rank's log.
  void say(const std::string& line);
  void warn(const std::string& line);
  /// A line in this rank's log only.
  void note(const std::string& line);
  /// A warning in this rank's log only; any thread may call it.
  void alarm(const std::string& line);

  void started(const TrainingState& state, const StartReport& report);
  void step(const StepReport& report);
  void epoch(const EpochReport& report);
  void straggler(const StragglerReport& report);
  void evaluation(std::int64_t step, std::int64_t epoch, const Evaluations& evaluations);
  void saved(const BackgroundSaver::Outcome& outcome);
  void stopped(std::int64_t step, std::int64_t epoch, const std::string& reason);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
