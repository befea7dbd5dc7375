#pragma once

#include "lockstep/compute/convolution_plan.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/models/models.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

/// Contents of one path or model: the same facts as JSON and as text.
struct Report {
  Json json;
  std::string text;  ///< ends with a newline
  /// What is wrong or damaged, one line each; `status` is that of the first fault.
  std::vector<std::string> faults = {};
  ExitStatus status = ExitStatus::ok;
};

enum class Verify { no, yes };

[[nodiscard]] Report inspect_shard(const std::string& path, Verify verify);
[[nodiscard]] Report inspect_data_set(const std::string& directory, Verify verify);
[[nodiscard]] Report inspect_checkpoint(const FilePath& path, Verify verify);
[[nodiscard]] Report inspect_run(const std::string& directory, Verify verify);

/// The run to compute memory for; its config's threads of 0 are omp_get_max_threads().
struct MemoryQuestion {
  int ranks = 1;
  ConvolutionChoices convolutions;
  bool on_processors = true;      ///< false: activations are unknown
  std::optional<ShardMode> only;  ///< nullopt: all modes
  Config config;
};
/// Table of what a rank stores and sends, one row per --shard mode (hybrid only with a
/// shard_group). Activations and gathered units are those of the CPU engine.
[[nodiscard]] Report inspect_memory(const Graph& graph, const MemoryQuestion& question);

/// The list of ops of one rank's step, with the configuration's collectives. Error(usage) if
/// CPUs do not compute in its precision.
[[nodiscard]] Report inspect_step(const Graph& graph, const Config& config, int ranks);

/// Table of the algorithm of each convolution with the config's precision, threads and batch size.
[[nodiscard]] Report inspect_engine(const Graph& graph, const Config& config,
                                    const ConvolutionPlan& plan);

/// Prediction of a training step on one GPU, by kernel; `gpu`: "h100". Error(usage) if that is
/// unknown.
[[nodiscard]] Report inspect_gpu(const Graph& graph, const Config& config, const std::string& gpu);

/// Runs `check`; stores an Error in the report instead of throwing it.
template <typename Check>
void keep_fault(Report& report, Check check) {
  try {
    check();
  } catch (const Error& error) {
    report.faults.emplace_back(error.what());
    if (report.status == ExitStatus::ok) report.status = error.status();
  }
}

/// Adds whether reading `each` found no faults beside the `earlier` ones; `json` is its part.
void add_damage(Report& report, Json& json, const char* each, std::size_t earlier = 0);

/// "  mean         0.1 0.2 0.3\n"; nothing for an empty value.
[[nodiscard]] std::string line(const std::string& name, const std::string& value);
/// "0.2860 0.3530"
[[nodiscard]] std::string join(const std::vector<float>& values);
/// "cat, dog", shortened if there are many.
[[nodiscard]] std::string join(const std::vector<std::string>& names);

}  // namespace lockstep::cli
