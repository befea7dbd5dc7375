#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::benchmark {

using Json = nlohmann::ordered_json;

/// The `train` options that `lockstep bench` accepts, with the defaults of `lockstep bench`.
[[nodiscard]] Config benchmarked_config();

/// Loads generated images in order, without augmentation.
[[nodiscard]] LoaderOptions synthetic_loader_options(const Config& config,
                                                     const InputFormat& format);

/// Options of `lockstep bench`; each benchmark uses a subset.
struct BenchOptions {
  Config config = benchmarked_config();
  std::int64_t steps = 20;  ///< measured, after the warm-up
  std::int64_t warmup = 3;
  std::string input = "loader";  ///< step: "batch" repeats one batch, the others load each
  std::string directory = ".";   ///< checkpoint: where to write
  bool json = false;
};

/// The environment of a benchmark: communicator and devices of the job.
struct BenchContext {
  Communicator& comm;
  const ProcessGrid& grid;
  const ThreadBinding& binding;
};

/// One measured table, as text columns and as JSON. Complete on rank 0; may be empty on other
/// ranks.
struct BenchResult {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  Json json;
};

[[nodiscard]] BenchResult bench_step(const BenchOptions& options, const BenchContext& context);
[[nodiscard]] BenchResult bench_ops(const BenchOptions& options, const BenchContext& context);
[[nodiscard]] BenchResult bench_allreduce(const BenchOptions& options, const BenchContext& context);
[[nodiscard]] BenchResult bench_loader(const BenchOptions& options, const BenchContext& context);
[[nodiscard]] BenchResult bench_decode(const BenchOptions& options, const BenchContext& context);
[[nodiscard]] BenchResult bench_checkpoint(const BenchOptions& options,
                                           const BenchContext& context);

/// Median and spread of repeated timings.
struct Sample {
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  double largest = 0;
};
[[nodiscard]] Sample summarize(std::vector<double> values);

/// Seconds on a steady clock.
[[nodiscard]] double now();

/// Machine, date and program version, which are needed to interpret the results.
[[nodiscard]] Json machine_description(const BenchContext& context);

/// Aligns the columns; numbers are right-aligned.
[[nodiscard]] std::string format_table(const BenchResult& result);

}  // namespace lockstep::benchmark
