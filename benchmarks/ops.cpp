// Times each operation of forward and backward separately, and groups the times by kind. Medians
// over repetitions of one rank's batch; with several ranks, of rank 0's.
#include "benchmark.hpp"

#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/compute/compute.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/models/models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace lockstep::benchmark {
namespace {

/// "weight gradient of layer1.0.conv2" -> "weight gradient": drops the layer's name.
std::string kind_of(std::string_view name, const Graph& graph) {
  const std::size_t space = name.rfind(' ');
  if (space == std::string_view::npos) return std::string(name);
  const std::string_view last = name.substr(space + 1);
  const bool is_layer = std::ranges::any_of(
      graph.parameters(), [&](const Parameter& each) { return each.name.starts_with(last); });
  if (!is_layer) return std::string(name);
  std::string_view kind = name.substr(0, space);
  if (kind.ends_with(" of")) kind.remove_suffix(3);
  return std::string(kind);
}

struct Kind {
  std::string name;
  int steps = 0;
  double seconds = 0;
};

/// Always loads the first samples.
std::unique_ptr<Loader> make_first_batch_loader(const Dataset& data, const Config& config,
                                                const InputFormat& format) {
  return make_loader(data, synthetic_loader_options(config, format),
                     [count = config.batch_size](std::int64_t) {
                       return BatchRequest{.epoch = 0, .first = 0, .count = count};
                     });
}

/// Median seconds of each step of the program.
std::vector<StepTime> measure(Program& program, const Batch& batch, const BenchOptions& options) {
  std::vector<std::vector<double>> seconds;
  std::vector<StepTime> times;
  for (std::int64_t i = 0; i < options.warmup + options.steps; ++i) {
    times = program.time_steps(batch);
    seconds.resize(times.size());
    if (i < options.warmup) continue;
    for (std::size_t step = 0; step < times.size(); ++step) {
      seconds[step].push_back(times[step].seconds);
    }
  }
  for (std::size_t step = 0; step < times.size(); ++step) {
    times[step].seconds = summarize(seconds[step]).median;
  }
  return times;
}

/// Sums by kind of step, longest first.
std::vector<Kind> sums_by_kind(const std::vector<StepTime>& times, const Graph& graph) {
  std::map<std::string, Kind> kinds;
  for (const StepTime& time : times) {
    const std::string name = kind_of(time.name, graph);
    Kind& kind = kinds[name];
    kind.name = name;
    ++kind.steps;
    kind.seconds += time.seconds;
  }
  std::vector<Kind> sorted;
  sorted.reserve(kinds.size());
  for (auto& [name, kind] : kinds) sorted.push_back(kind);
  std::ranges::sort(sorted, std::greater{}, &Kind::seconds);
  return sorted;
}

}  // namespace

BenchResult bench_ops(const BenchOptions& options, const BenchContext& context) {
  const Config& config = options.config;
  const ImageShape image{
      .channels = config.channels, .height = config.image_size, .width = config.image_size};
  const Graph graph = make_model(config.model, {.image = image,
                                                .classes = config.classes,
                                                .width = config.width,
                                                .zero_init_residual = false,
                                                .label_smoothing = 0});
  const auto compute = make_compute(graph,
                                    {.device = config.device,
                                     .precision = config.precision,
                                     .threads = context.binding.threads,
                                     .reduces = false,
                                     .conv_algorithm = config.conv_algorithm,
                                     .conv_batch = config.batch_size,
                                     .recompute = config.recompute,
                                     .deterministic = config.deterministic},
                                    context.grid, context.comm);
  Engine& engine = compute->engine();
  initialize_model(engine, 0);
  const auto program = engine.compile_training(config.batch_size);
  const auto data = make_synthetic_dataset(
      {.samples = config.batch_size, .image = image, .classes = config.classes, .seed = 0});
  const auto loader = make_first_batch_loader(*data, config, engine.input_format());
  const Batch batch = loader->next()->batch;

  const std::vector<StepTime> times = measure(*program, batch, options);
  double total = 0;
  Json steps = Json::array();
  for (const StepTime& time : times) {
    total += time.seconds;
    steps.push_back({{"name", time.name}, {"seconds", time.seconds}});
  }
  BenchResult result;
  result.columns = {"kind of step", "steps", "ms", "%"};
  Json rows = Json::array();
  for (const Kind& kind : sums_by_kind(times, graph)) {
    result.rows.push_back({kind.name, std::to_string(kind.steps),
                           fmt::format("{:.3f}", kind.seconds * 1e3),
                           fmt::format("{:.1f}", 100 * kind.seconds / total)});
    rows.push_back({{"kind", kind.name}, {"steps", kind.steps}, {"seconds", kind.seconds}});
  }
  result.rows.push_back(
      {"all", std::to_string(times.size()), fmt::format("{:.3f}", total * 1e3), "100.0"});
  result.json = {{"benchmark", "ops"},
                 {"model", config.model},
                 {"image_size", config.image_size},
                 {"batch_size", config.batch_size},
                 {"precision", to_string(config.precision)},
                 {"engine", engine.description()},
                 {"seconds", total},
                 {"kinds", rows},
                 {"steps", steps}};
  return result;
}

}  // namespace lockstep::benchmark
