#pragma once

#include "lockstep/compute/convolution_plan.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

/// What one path or model holds: the same facts as JSON and as lines.
struct Report {
  nlohmann::ordered_json json;
  std::string text;  ///< ends with a newline
  /// What did not verify, one line each; the status of the first.
  std::vector<std::string> faults = {};
  ExitStatus status = ExitStatus::ok;
};

enum class Verify { no, yes };

/// By what it is: a shard, a directory of shards, a checkpoint or a run directory. Error(no_input)
/// where it is absent, Error(bad_input) where it is none of these.
[[nodiscard]] Report inspect_path(const std::string& path, Verify verify);

[[nodiscard]] Report inspect_shard(const std::string& path, Verify verify);
[[nodiscard]] Report inspect_data_set(const std::string& directory, Verify verify);
[[nodiscard]] Report inspect_checkpoint(const std::string& path, Verify verify);
[[nodiscard]] Report inspect_run(const std::string& directory, Verify verify);
[[nodiscard]] Report inspect_model(const Graph& graph);

/// For how many ranks, samples a rank and how a run would be; from config: precision, optimizer,
/// shard_unit, shard_group, param_dtype, reduce_dtype.
struct MemoryQuestion {
  int ranks = 1;
  std::int64_t batch_size = 32;
  int threads = 0;   ///< of a rank; 0: omp_get_max_threads()
  std::string unit;  ///< --shard-unit as it was given
  ConvolutionChoices convolutions;
  bool on_processors = true;  ///< else nothing is said of activations
  std::optional<ShardMode> only;
  Config config;
};
/// A table of what a rank keeps and sends, a row for each --shard, for hybrid with a shard_group
/// alone; activations, and what units that come and go take beside them, are the processor
/// engine's.
[[nodiscard]] Report inspect_memory(const Graph& graph, const MemoryQuestion& question);

struct EngineQuestion {
  Precision precision = Precision::fp32;
  int threads = 0;
  std::int64_t batch_size = 32;
};
/// What each convolution is computed by.
[[nodiscard]] Report inspect_engine(const Graph& graph, const EngineQuestion& question,
                                    const ConvolutionPlan& plan);

/// Runs `check` and keeps its Error in the report instead.
template <typename Check>
void keep_fault(Report& report, Check check) {
  try {
    check();
  } catch (const Error& error) {
    report.faults.emplace_back(error.what());
    if (report.status == ExitStatus::ok) report.status = error.status();
  }
}

/// "  mean         0.1 0.2 0.3\n"; nothing for an empty value.
[[nodiscard]] std::string line(const std::string& name, const std::string& value);
/// "0.2860 0.3530"
[[nodiscard]] std::string join(const std::vector<float>& values);
/// "cat, dog", shortened where there are many.
[[nodiscard]] std::string join(const std::vector<std::string>& names);

}  // namespace lockstep::cli
