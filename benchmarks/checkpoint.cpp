// Cost of a checkpoint on rank 0: the stall of the training thread (the copy at a step boundary),
// and the time until the background write has finished. No step waits for the write.
#include "benchmark.hpp"

#include "lockstep/checkpoint/checkpoint_directory.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/checkpointing/state_snapshot.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/parallel/parallel_state.hpp"

#include <fmt/format.h>

#include <filesystem>

namespace lockstep::benchmark {

BenchResult bench_checkpoint(const BenchOptions& options, const BenchContext& context) {
  const Config& config = options.config;
  const Graph graph = make_model(config.model, {.image = {.channels = config.channels,
                                                          .height = config.image_size,
                                                          .width = config.image_size},
                                                .classes = config.classes,
                                                .width = config.width,
                                                .zero_init_residual = false,
                                                .label_smoothing = 0});
  const auto engine = make_cpu_engine(graph, {.threads = context.binding.threads, .tail_size = 0});
  initialize_model(*engine, 0);
  const auto optimizer = make_optimizer(Config{}, engine->layout());
  const auto self = make_self_communicator();
  const auto state = make_replicated_state(*engine, *self, *self, {});
  std::vector<double> copies;
  std::vector<double> writes;
  double bytes = 0;
  collectively(context.comm, [&] {
    if (context.comm.rank() != 0) return;
    const std::string path = options.directory + "/lockstep-bench-checkpoints";
    {
      CheckpointDirectory directory(path, 1);
      BackgroundSaver saver(directory);
      StateSnapshot snapshot({.engine = *engine, .transfer = *state, .optimizer = *optimizer},
                             true);
      for (std::int64_t i = 1; i <= options.warmup + options.steps; ++i) {
        const double begin = now();
        snapshot.take();
        CheckpointInfo info;
        info.state.emplace().step = i;
        saver.start(info, [&snapshot] { return snapshot.next(); });
        const double copied = now() - begin;
        saver.wait();
        const double written = now() - begin;
        const auto outcome = saver.poll();
        if (outcome && outcome->error) throw Error(ExitStatus::cannot_write, *outcome->error);
        if (outcome) bytes = static_cast<double>(std::filesystem::file_size(outcome->path));
        if (i <= options.warmup) continue;
        copies.push_back(copied);
        writes.push_back(written);
      }
    }
    std::filesystem::remove_all(path);
  });
  BenchResult result;
  if (context.comm.rank() != 0) return result;
  const Sample copy = summarize(copies);
  const Sample write = summarize(writes);
  result.columns = {"model", "MiB", "stall ms", "p90 ms", "write s", "MB/s"};
  result.rows.push_back({config.model, fmt::format("{:.1f}", bytes / 0x1p20),
                         fmt::format("{:.2f}", 1e3 * copy.median),
                         fmt::format("{:.2f}", 1e3 * copy.p90), fmt::format("{:.3f}", write.median),
                         fmt::format("{:.0f}", bytes / write.median / 1e6)});
  result.json = {{"benchmark", "checkpoint"},
                 {"model", config.model},
                 {"bytes", bytes},
                 {"stall_seconds_median", copy.median},
                 {"stall_seconds_p90", copy.p90},
                 {"write_seconds_median", write.median}};
  return result;
}

}  // namespace lockstep::benchmark
