// The training step: forward, backward with overlapped reduction, update; the loader prefetches.
// images/s = images of all measured steps / their total time; a step's time is that of the slowest
// rank.
#include "benchmark.hpp"
#include "generated_jpegs.hpp"

#include "lockstep/compute/compute.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/runtime/memory_limit.hpp"
#include "lockstep/runtime/trace.hpp"
#include "lockstep/train/train_step.hpp"
#include "lockstep/train/training_session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace lockstep::benchmark {
namespace {

/// Repeats a loader's first batch, so that steps read and generate no data.
class RepeatingLoader final : public Loader {
 public:
  explicit RepeatingLoader(Loader& loader) : batch_(loader.next()) {}
  using Loader::next;
  [[nodiscard]] std::optional<LoadedBatch> next(FunctionRef<void()>) override { return batch_; }

 private:
  std::optional<LoadedBatch> batch_;
};

BatchGeometry geometry_of(const Config& config, const Communicator& comm) {
  return {.samples = std::int64_t{1} << 40,
          .global_batch = config.batch_size * comm.size(),
          .world_size = comm.size(),
          .rank = comm.rank(),
          .accumulate = 1};
}

Graph graph_of(const Config& config, const ImageShape& image) {
  return make_model(config.model, {.image = image,
                                   .classes = config.classes,
                                   .width = config.width,
                                   .zero_init_residual = false,
                                   .label_smoothing = 0});
}

void check_shard_group(const Config& config) {
  if (config.shard_group > 0 && config.shard != ShardMode::hybrid) {
    fail(ExitStatus::usage, "--shard-group {} belongs to --shard hybrid (it is {}); drop it",
         config.shard_group, to_string(config.shard));
  }
}

std::unique_ptr<Loader> make_generated_loader(const Dataset& data, const BenchOptions& options,
                                              const BatchGeometry& geometry,
                                              const InputFormat& format,
                                              const std::vector<int>& cores) {
  LoaderOptions loading = synthetic_loader_options(options.config, format);
  loading.cores = cores;  // otherwise its threads share this thread's core
  if (options.input == "batch") loading.batches_ahead = 0;
  if (options.input == "jpeg") loading.augment = Augment::resized_crop;
  return make_loader(data, loading,
                     plan_training_batches(geometry, {}, options.warmup + options.steps));
}

/// Measured over all ranks.
struct Measurement {
  Sample seconds;        ///< of a step on the slowest rank
  double total = 0;      ///< of all steps, in s
  PhaseTimes phases;     ///< of this rank, summed over the steps
  double exposed = 0;    ///< communication not hidden by backward, in s: summed over the steps and
                         ///< averaged over the ranks, since waiting differs by rank
  double hidden = 0;     ///< the same of communication while the rank computes; NaN: unknown
  std::int64_t rss = 0;  ///< highest of a rank, in bytes
};

/// Seconds in which at least one collective was under way; NaN if some are not recorded.
double seconds_under_way(TraceRecorder& trace) {
  const TraceRow::Content content = trace.row(TracedCommunicator::under_way_row).content();
  if (content.dropped > 0) return std::numeric_limits<double>::quiet_NaN();
  std::int64_t total = 0;
  std::int64_t counted = 0;  // until when
  for (const TraceEvent& event : content.events) {
    total += std::max<std::int64_t>(0, event.end - std::max(event.begin, counted));
    counted = std::max(counted, event.end);
  }
  return 1e-9 * static_cast<double>(total);
}

Measurement measure(TrainStep& step, Communicator& comm, TraceRecorder& trace,
                    const BenchOptions& options) {
  Measurement measured;
  std::vector<double> seconds;
  for (std::int64_t i = 1; i <= options.warmup + options.steps; ++i) {
    if (i == options.warmup + 1) trace.start();
    const double begin = now();
    const bool last = i == options.warmup + options.steps;
    const StepResult result =
        step.run({.number = i, .lr = 0.01}, {.next = last ? NextAction::other : NextAction::step});
    const double elapsed = comm.all_reduce_value(now() - begin, ReduceOp::max);
    if (i <= options.warmup) continue;
    seconds.push_back(elapsed);
    measured.phases += result.times;
  }
  trace.stop();
  measured.seconds = summarize(seconds);
  measured.total = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  measured.rss = comm.all_reduce_value(peak_resident_bytes(), ReduceOp::max);
  const double exposed = measured.phases.communication;
  measured.exposed = comm.all_reduce_value(exposed) / comm.size();
  const double hidden = seconds_under_way(trace) - exposed;
  measured.hidden = comm.all_reduce_value(hidden < 0 ? 0 : hidden) / comm.size();
  return measured;
}

std::vector<std::string> row_of(const Measurement& measured, const BenchOptions& options,
                                const BenchContext& context) {
  const Config& config = options.config;
  const std::int64_t batch = config.batch_size * context.comm.size();
  const auto percent = [total = measured.phases.total()](double seconds) {
    return fmt::format("{:.1f}", 100 * seconds / total);
  };
  return {config.model,
          std::string(to_string(config.precision)),
          std::to_string(batch),
          std::to_string(context.comm.size()),
          std::to_string(context.binding.threads),
          fmt::format("{:.1f}", static_cast<double>(batch * options.steps) / measured.total),
          fmt::format("{:.4f}", measured.seconds.median),
          fmt::format("{:.4f}-{:.4f}", measured.seconds.p10, measured.seconds.p90),
          percent(measured.phases.forward),
          percent(measured.phases.backward),
          percent(measured.phases.communication),
          percent(measured.phases.optimizer),
          fmt::format("{:.0f}", static_cast<double>(measured.rss) / 0x1p20)};
}

BenchResult table_of(const Measurement& measured, const BenchOptions& options,
                     const BenchContext& context) {
  BenchResult result;
  result.columns = {"model",    "precision",   "batch",     "ranks",     "threads",
                    "images/s", "step s",      "p10-p90 s", "forward %", "backward %",
                    "comm %",   "optimizer %", "peak MiB"};
  result.rows.push_back(row_of(measured, options, context));
  return result;
}

Json describe(const BenchOptions& options) {
  const Config& config = options.config;
  return {{"benchmark", "step"},
          {"model", config.model},
          {"width", config.width},
          {"image_size", config.image_size},
          {"channels", config.channels},
          {"classes", config.classes},
          {"batch_size", config.batch_size},
          {"precision", to_string(config.precision)},
          {"input", options.input},
          {"warmup", options.warmup},
          {"steps", options.steps},
          {"decode", config.decode == DecodeChoice::gpu ? "gpu" : "cpu"},
          {"bucket_mb", config.bucket_mb},
          {"shard", to_string(config.shard)},
          {"conv_algorithm", to_string(config.conv_algorithm)},
          {"recompute", to_string(config.recompute)},
          {"deterministic", config.deterministic},
          {"cuda_graph", config.cuda_graph}};
}

/// `samples`: of all measured steps.
Json describe_speed(const Measurement& measured, std::int64_t samples) {
  return {{"definition", "samples by total time"},  // of images_per_second
          {"images_per_second", static_cast<double>(samples) / measured.total},
          {"measured_samples", samples},
          {"measured_seconds", measured.total},
          {"step_seconds_median", measured.seconds.median},
          {"step_seconds_p10", measured.seconds.p10},
          {"step_seconds_p90", measured.seconds.p90}};
}

}  // namespace

BenchResult bench_step(const BenchOptions& options, const BenchContext& context) {
  const Config& config = options.config;
  Communicator& comm = context.comm;
  prepare_environment(config);
  const std::int64_t rss_at_start = comm.all_reduce_value(peak_resident_bytes(), ReduceOp::max);
  check_shard_group(config);
  const ImageShape image{
      .channels = config.channels, .height = config.image_size, .width = config.image_size};
  const BatchGeometry geometry = geometry_of(config, comm);
  const Graph graph = graph_of(config, image);
  constexpr std::int64_t most_events = 65'536;
  TraceRecorder trace(static_cast<std::size_t>(std::min(256 * options.steps, most_events)));
  TrainingSession session(graph, config, context.grid, comm,
                          {.threads = context.binding.threads,
                           .cores = context.binding.allowed,
                           .conv_batch = config.batch_size,
                           .trace = &trace});
  session.start({});
  Engine& engine = session.engine();
  const auto data = options.input == "jpeg" ? make_generated_jpegs(geometry.samples, config.classes)
                                            : make_synthetic_dataset({.samples = geometry.samples,
                                                                      .image = image,
                                                                      .classes = config.classes,
                                                                      .seed = 0});
  const auto generated = make_generated_loader(*data, options, geometry, engine.input_format(),
                                               context.binding.allowed);
  std::optional<RepeatingLoader> repeated;
  if (options.input == "batch") repeated.emplace(*generated);
  Loader& loader = repeated ? static_cast<Loader&>(*repeated) : *generated;
  const bool scaled = config.precision == Precision::fp16;
  TrainStep step(engine, session.parallel(), session.optimizer(), comm, loader,
                 {.geometry = geometry,
                  .loss_scale = scaled ? std::optional(LossScale{}) : std::nullopt,
                  .has_collectives = session.training_has_collectives()});
  Measurement measured = measure(step, comm, trace, options);
  // Groups and devices have collectives that are not recorded.
  if (engine.memory().queues() || config.shard == ShardMode::hybrid) {
    measured.hidden = std::numeric_limits<double>::quiet_NaN();
  }
  session.parallel().await_gathers();
  BenchResult result = table_of(measured, options, context);
  result.json = describe(options);
  result.json.update(describe_speed(measured, geometry.global_batch * options.steps));
  result.json.update(Json{
      {"global_batch", geometry.global_batch},
      {"shard_group", config.shard == ShardMode::hybrid ? session.shard_group() : 0},
      {"activation_bytes", step.activation_bytes()},
      {"state_bytes", session.parallel().bytes(session.optimizer().slot_names().size()).total()},
      {"threads", context.binding.threads},
      {"engine", engine.description()},
      {"ranks", comm.size()},
      {"nodes", context.grid.nodes},
      {"exposed_communication_seconds", measured.exposed / static_cast<double>(options.steps)},
      {"hidden_communication_seconds", measured.hidden / static_cast<double>(options.steps)},
      {"peak_rss_bytes", measured.rss},
      {"start_rss_bytes", rss_at_start},  // the program, MPI and libraries
      {"peak_device_bytes", engine.memory().peak_device_bytes()}});
  return result;
}

}  // namespace lockstep::benchmark
