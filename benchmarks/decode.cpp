// Loading of JPEG files: a loader's batches, cropped at random, decoded by the loader or by the
// GPU, as input of a network of a single small convolution. images/s = ranks * batch / mean seconds
// of a batch on the slowest rank: batches that were loaded ahead take no time.
#include "benchmark.hpp"
#include "generated_jpegs.hpp"
#include "lockstep/compute/compute.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/graph/graph.hpp"
#include "lockstep/train/batch_geometry.hpp"

#include <fmt/format.h>

namespace lockstep::benchmark {
namespace {

Graph smallest_network(const ImageShape& image) {
  Graph graph("first pixels", image.shape());
  ValueId x =
      graph.conv2d(graph.input(), {.name = "conv", .out_channels = 8, .kernel = 1, .stride = 32});
  x = graph.linear(graph.flatten(x), {.name = "fc", .out_features = 2});
  graph.softmax_cross_entropy(x, {});
  return graph;
}

}  // namespace

BenchResult bench_decode(const BenchOptions& options, const BenchContext& context) {
  const Config& config = options.config;
  Communicator& comm = context.comm;
  const ImageShape image{.channels = 3, .height = 224, .width = 224};
  const Graph graph = smallest_network(image);
  const auto compute = make_compute(graph,
                                    {.device = config.device,
                                     .threads = context.binding.threads,
                                     .reduces = false,
                                     .conv_algorithm = ConvAlgorithm::direct,
                                     .decode = config.decode},
                                    context.grid, comm);
  Engine& engine = compute->engine();
  const std::int64_t batches = options.warmup + options.steps;
  const BatchGeometry geometry{.samples = std::int64_t{1} << 40,
                               .global_batch = config.batch_size * comm.size(),
                               .world_size = comm.size(),
                               .rank = comm.rank(),
                               .accumulate = 1};
  const auto data = make_generated_jpegs(geometry.samples, graph.outputs());
  LoaderOptions loading = synthetic_loader_options(config, engine.input_format());
  loading.image = image;
  loading.augment = Augment::resized_crop;
  loading.cores = context.binding.allowed;
  std::vector<double> seconds;
  std::string decoder = "loader";
  collectively(comm, [&] {
    const auto loader = make_loader(*data, loading, plan_training_batches(geometry, {}, batches));
    const auto program = engine.compile_inference(config.batch_size);
    for (std::int64_t i = 0; i < batches; ++i) {
      const double begin = now();
      const Batch batch = loader->next()->batch;
      if (batch.pixels.data != nullptr) engine.prefetch(batch);
      program->forward(batch);
      static_cast<void>(program->metrics());
      if (i >= options.warmup) seconds.push_back(now() - begin);
    }
    if (const DeviceDecoding* const decoding = engine.input_format().decoding) {
      decoder = decoding->description();
    }
  });
  for (double& each : seconds) each = comm.all_reduce_value(each, ReduceOp::max);
  double total = 0;
  for (const double each : seconds) total += each;
  const double rate = static_cast<double>(geometry.global_batch * options.steps) / total;
  BenchResult result;
  result.columns = {"decoder", "loader threads", "batch", "ranks", "images/s"};
  result.rows.push_back({decoder, std::to_string(config.loader_threads),
                         std::to_string(geometry.global_batch), std::to_string(comm.size()),
                         fmt::format("{:.0f}", rate)});
  result.json = {{"benchmark", "decode"},
                 {"decoder", decoder},
                 {"engine", engine.description()},
                 {"loader_threads", config.loader_threads},
                 {"batch_size", config.batch_size},
                 {"images_per_second", rate},
                 {"batch_seconds_median", summarize(seconds).median}};
  return result;
}

}  // namespace lockstep::benchmark
