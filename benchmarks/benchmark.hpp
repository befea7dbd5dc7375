#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/config/option_types.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/runtime/process_grid.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::benchmark {

using Json = nlohmann::ordered_json;

/// Options of `lockstep bench`; each benchmark uses a subset.
struct BenchOptions {
  std::string model = "mini-resnet";
  std::int64_t width = 0;
  std::int64_t image_size = 32;
  std::int64_t channels = 3;
  std::int64_t classes = 10;
  std::int64_t batch_size = 64;  ///< per rank
  std::int64_t steps = 20;       ///< measured, after the warm-up
  std::int64_t warmup = 3;
  Precision precision = Precision::fp32;
  DeviceChoice device = DeviceChoice::automatic;
  CommChoice comm = CommChoice::automatic;
  ConvAlgorithm conv_algorithm = ConvAlgorithm::automatic;
  Recompute recompute = Recompute::automatic;
  bool deterministic = true;
  bool cuda_graph = true;
  std::string input = "loader";  ///< step: "batch" repeats one batch, "loader" loads each
  double bucket_mb = 25;
  ShardMode shard = ShardMode::none;
  std::int64_t shard_group = 0;  ///< for hybrid; 0: the ranks of a node
  OptimizerKind optimizer = OptimizerKind::sgd;
  std::string data;             ///< loader: a directory of shards
  std::string directory = ".";  ///< checkpoint: where to write
  std::int64_t loader_threads = 1;
  std::int64_t threads = 0;
  bool json = false;
  friend bool operator==(const BenchOptions&, const BenchOptions&) = default;
};

/// The job that a benchmark runs in.
struct BenchContext {
  Communicator& comm;
  const ProcessGrid& grid;
  const ThreadBinding& binding;
};

/// One measured table, and the same as JSON. Complete on rank 0; other ranks' may be empty.
struct BenchResult {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  Json json;
};

[[nodiscard]] BenchResult bench_step(const BenchOptions& options, const BenchContext& context);
[[nodiscard]] BenchResult bench_ops(const BenchOptions& options, const BenchContext& context);
[[nodiscard]] BenchResult bench_allreduce(const BenchOptions& options, const BenchContext& context);
[[nodiscard]] BenchResult bench_loader(const BenchOptions& options, const BenchContext& context);
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

/// Largest resident set of this process so far, bytes.
[[nodiscard]] std::int64_t peak_rss_bytes();

/// Machine, date and program version, to interpret the figures.
[[nodiscard]] Json machine_description(const BenchContext& context);

/// Aligns columns, numbers to the right.
[[nodiscard]] std::string format_table(const BenchResult& result);

}  // namespace lockstep::benchmark
