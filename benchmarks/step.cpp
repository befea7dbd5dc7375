// The training step: forward, backward with overlapped reduction, update; the loader works ahead.
// images/s = ranks * batch / median step time; a step's time is that of the slowest rank.
#include "benchmark.hpp"

#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/train/train_step.hpp"
#include "lockstep/train/training_session.hpp"

#include <fmt/format.h>

namespace lockstep::benchmark {
namespace {

/// Repeats a loader's first batch, so nothing is read or generated during steps.
class RepeatingLoader final : public Loader {
 public:
  explicit RepeatingLoader(Loader& loader) : batch_(loader.next()) {}
  [[nodiscard]] std::optional<LoadedBatch> next() override { return batch_; }

 private:
  std::optional<LoadedBatch> batch_;
};

}  // namespace

BenchResult bench_step(const BenchOptions& options, const BenchContext& context) {
  const Config& config = options.config;
  Communicator& comm = context.comm;
  if (config.shard_group > 0 && config.shard != ShardMode::hybrid) {
    fail(ExitStatus::usage, "--shard-group {} belongs to --shard hybrid (it is {}); drop it",
         config.shard_group, to_string(config.shard));
  }
  const ImageShape image{
      .channels = config.channels, .height = config.image_size, .width = config.image_size};
  const BatchGeometry geometry{.samples = std::int64_t{1} << 40,
                               .global_batch = config.batch_size * comm.size(),
                               .world_size = comm.size(),
                               .rank = comm.rank(),
                               .accumulate = 1};
  const Graph graph = make_model(config.model, {.image = image,
                                                .classes = config.classes,
                                                .width = config.width,
                                                .zero_init_residual = false,
                                                .label_smoothing = 0});
  TrainingSession session(graph, config, context.grid, comm,
                          {.threads = context.binding.threads, .conv_batch = config.batch_size});
  session.start({});
  Engine& engine = session.engine();
  const auto data = make_synthetic_dataset(
      {.samples = geometry.samples, .image = image, .classes = config.classes, .seed = 0});
  const auto channels = static_cast<std::size_t>(config.channels);
  const auto generated =
      make_loader(*data,
                  {.image = image,
                   .format = engine.input_format(),
                   .mean = std::vector<float>(channels, 0.5F),
                   .std = std::vector<float>(channels, 0.25F),
                   .batch_capacity = config.batch_size,
                   .threads = static_cast<int>(config.loader_threads),
                   .batches_ahead = options.input == "batch" ? 0 : LoaderOptions{}.batches_ahead,
                   .shuffle = false},
                  plan_training_batches(geometry, {}, options.warmup + options.steps));
  std::optional<RepeatingLoader> repeated;
  if (options.input == "batch") repeated.emplace(*generated);
  Loader& loader = repeated ? static_cast<Loader&>(*repeated) : *generated;
  const bool scaled = config.precision == Precision::fp16;
  TrainStep step(engine, session.parallel(), session.optimizer(), comm, loader,
                 {.geometry = geometry,
                  .loss_scale = scaled ? std::optional(LossScale{}) : std::nullopt,
                  .has_collectives = session.training_has_collectives()});

  std::vector<double> seconds;
  PhaseTimes phases;
  for (std::int64_t i = 1; i <= options.warmup + options.steps; ++i) {
    const double begin = now();
    const bool last = i == options.warmup + options.steps;
    const StepResult result = step.run(i, 0.01, {}, last ? NextAction::other : NextAction::step);
    const double elapsed = comm.all_reduce_value(now() - begin, ReduceOp::max);
    if (i <= options.warmup) continue;
    seconds.push_back(elapsed);
    phases += result.times;
  }
  const Sample sample = summarize(seconds);
  const std::int64_t rss = comm.all_reduce_value(peak_rss_bytes(), ReduceOp::max);
  // Communication not hidden by backward, averaged over ranks, since waiting differs by rank.
  const double exposed = comm.all_reduce_value(phases.communication) / comm.size();
  const double rate = static_cast<double>(geometry.global_batch) / sample.median;
  const double total = phases.total();
  BenchResult result;
  result.columns = {"model",    "precision",   "batch",     "ranks",     "threads",
                    "images/s", "step s",      "p10-p90 s", "forward %", "backward %",
                    "comm %",   "optimizer %", "peak MiB"};
  result.rows.push_back({config.model, std::string(to_string(config.precision)),
                         std::to_string(geometry.global_batch), std::to_string(comm.size()),
                         std::to_string(context.binding.threads), fmt::format("{:.1f}", rate),
                         fmt::format("{:.4f}", sample.median),
                         fmt::format("{:.4f}-{:.4f}", sample.p10, sample.p90),
                         fmt::format("{:.1f}", 100 * phases.forward / total),
                         fmt::format("{:.1f}", 100 * phases.backward / total),
                         fmt::format("{:.1f}", 100 * phases.communication / total),
                         fmt::format("{:.1f}", 100 * phases.optimizer / total),
                         fmt::format("{:.0f}", static_cast<double>(rss) / 0x1p20)});
  result.json = {
      {"benchmark", "step"},
      {"model", config.model},
      {"image_size", config.image_size},
      {"batch_size", config.batch_size},
      {"global_batch", geometry.global_batch},
      {"precision", to_string(config.precision)},
      {"input", options.input},
      {"shard", to_string(config.shard)},
      {"shard_group", config.shard == ShardMode::hybrid ? session.shard_group() : 0},
      {"activation_bytes", step.activation_bytes()},
      {"state_bytes", session.parallel().bytes(session.optimizer().slot_names().size()).total()},
      {"conv_algorithm", to_string(config.conv_algorithm)},
      {"recompute", to_string(config.recompute)},
      {"deterministic", config.deterministic},
      {"cuda_graph", config.cuda_graph},
      {"threads", context.binding.threads},
      {"engine", engine.description()},
      {"images_per_second", rate},
      {"step_seconds_median", sample.median},
      {"step_seconds_p10", sample.p10},
      {"step_seconds_p90", sample.p90},
      {"ranks", comm.size()},
      {"nodes", context.grid.nodes},
      {"exposed_communication_seconds", exposed / static_cast<double>(options.steps)},
      {"peak_rss_bytes", rss},
      {"peak_device_bytes", engine.memory().peak_device_bytes()}};
  return result;
}

}  // namespace lockstep::benchmark
