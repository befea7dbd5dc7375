#pragma once

#include "lockstep/report/run_record.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::report {

/// What the files of a run directory tell, besides metrics.jsonl and config.ini.
struct RunFiles {
  struct Checkpoint {
    std::string name;
    double time = unknown;  ///< Unix time of its last change
  };
  /// The file `lock`: empty if no job holds the run.
  struct Lock {
    std::string holder;          ///< "Slurm job 5 on node1"; empty: none
    double heartbeat = unknown;  ///< Unix time when the last one was seen
  };
  struct Restarts {
    std::int64_t count = 0;
    std::string last;  ///< the last line, without the job's name
  };
  std::optional<Checkpoint> latest;
  std::optional<Lock> lock;
  Restarts restarts;
  double arrived = unknown;  ///< Unix time when the last event was seen
};

enum class Activity { empty, running, silent, finished, stopped, failed };
[[nodiscard]] const char* name_of(Activity activity);

constexpr std::array phase_names{"data", "forward", "backward", "communication", "optimizer"};

/// The values that `lockstep watch` shows; NaN: unknown.
struct RunStatus {
  std::string path;
  std::string name;
  Activity activity = Activity::empty;
  std::string reason;       ///< of the activity; may be empty
  double silent = unknown;  ///< seconds since the last event
  std::string holder;       ///< job that holds the run

  std::string model;
  std::string hosts;
  std::string device;
  std::string version;
  double ranks = unknown;
  double nodes = unknown;
  double jobs = 0;

  double step = 0;
  double steps = unknown;   ///< of the whole run
  double epoch = unknown;   ///< epochs done, with a fraction
  double epochs = unknown;  ///< of the whole run
  double seconds_left = unknown;

  double loss = unknown;  ///< this and the next four: of the last recorded step
  double top1 = unknown;
  double lr = unknown;
  double images_per_second = unknown;
  double gradient_norm = unknown;
  std::vector<double> last_losses;  ///< of recorded steps, the newest last
  std::vector<double> last_speeds;
  std::vector<double> all_losses;  ///< of the whole run; means of adjacent steps if there are many
  double first_not_finite = unknown;  ///< step

  double validation_loss = unknown;
  double validation_top1 = unknown;
  double validation_ema_top1 = unknown;
  double best_top1 = unknown;
  double best_step = unknown;
  std::vector<double> validation_top1s;

  double phase_steps = 0;  ///< recorded steps of the means below
  double step_seconds = unknown;
  std::array<double, phase_names.size()> phases{};  ///< mean seconds a step

  std::optional<SlowRank> slowest;  ///< of the last epoch with a report
  double planned_bytes = unknown;
  double peak_rss = unknown;

  std::optional<RunFiles::Checkpoint> checkpoint;
  double checkpoint_step = unknown;
  double checkpoint_age = unknown;  ///< seconds
  double save_seconds = unknown;
  RunFiles::Restarts restarts;
  std::vector<std::string> notes;  ///< what could not be read
};

/// `now`: Unix time. Pure.
[[nodiscard]] RunStatus status_of(const RunRecord& run, const RunFiles& files, double now);
[[nodiscard]] Json status_json(const RunStatus& status);

}  // namespace lockstep::report
