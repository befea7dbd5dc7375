#pragma once

#include "lockstep/core/environment_variable.hpp"

#include <optional>
#include <stop_token>
#include <string>

namespace lockstep {

/// What Slurm says of a job's end.
struct SlurmAnswer {
  enum class Kind {
    ends,         ///< in `seconds_left`
    unlimited,    ///< the job has no time limit
    unknown_job,  ///< no such job runs
    none          ///< Slurm did not answer
  };
  Kind kind = Kind::none;
  double seconds_left = 0;
  std::string text = {};  ///< without an answer: what squeue said
};

/// Asks squeue, whose answer the user's SQUEUE_..., SLURM_TIME_FORMAT and SLURM_CLUSTERS cannot
/// change. Ends early if a stop is requested.
[[nodiscard]] SlurmAnswer ask_slurm(const std::string& job, const std::stop_token& stop = {});

/// The answer for `job` in lines "JOB TIME_LEFT", one for each element of its array or part of its
/// heterogeneous job. `status`: squeue's; nullopt: none.
[[nodiscard]] SlurmAnswer read_squeue(const std::string& output, std::optional<int> status,
                                      const std::string& job);
/// Seconds of squeue's "1-02:03:04", "02:03:04", "03:04" or "4"; nullopt for anything else.
[[nodiscard]] std::optional<double> parse_time_left(const std::string& text);

/// The job's end by SLURM_JOB_END_TIME, which sbatch passes on from job to job.
struct VariableTime {
  std::optional<double> seconds_left;
  std::string problem;  ///< why the variable is not used; empty: it is, or there is none
};
/// `now`: seconds since 1970.
[[nodiscard]] VariableTime time_of_variables(const VariableLookup& lookup, double now);

/// SLURM_JOB_ID; empty if it is unset or no number.
[[nodiscard]] std::string slurm_job(const VariableLookup& lookup);

}  // namespace lockstep
