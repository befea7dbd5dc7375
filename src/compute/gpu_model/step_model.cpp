#include "step_model.hpp"

#include "../../engine/gpu/device_engine.hpp"
#include "../../optim/device/device_optimizer.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/batch.hpp"
#include "lockstep/core/image_shape.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/parallel/bucket_plan.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::gpu {
namespace {

// Fitted to the profile of 2026-11-26 (benchmarks/results/2026-11-26-resnet50-kernels-h200.json).
constexpr double launch_seconds = 4e-6;
constexpr double share_of_memory_rate = 0.81;
constexpr double share_of_tensor_rate = 0.60;

LaunchCost cost_of(double operations, double bytes, const Config& config, const GpuSpec& gpu) {
  const double traffic = bytes / gpu.memory_rate;
  const double arithmetic = operations / gpu.rate(config.precision);
  return {.launches = 1,
          .bytes = bytes,
          .operations = operations,
          .seconds = launch_seconds +
                     std::max(traffic / share_of_memory_rate, arithmetic / share_of_tensor_rate),
          .seconds_at_peak = std::max(traffic, arithmetic)};
}

/// A step's traffic is that of its first launch whose traffic is unknown; later ones combine a few
/// partial results. That of a step with a convolution is known.
void add_step(StepModel& model, const StepTime& step, const std::vector<Launch>& launches,
              const Config& config, const GpuSpec& gpu) {
  auto rest = static_cast<double>(step.bytes);
  for (const Launch& launch : launches) {
    if (launch.operations > 0) rest = 0;
  }
  for (const Launch& launch : launches) {
    const double bytes = launch.bytes ? *launch.bytes : std::exchange(rest, 0);
    model.launches.push_back({.step = step.name,
                              .kernel = launch.kernel,
                              .cost = cost_of(launch.operations, bytes, config, gpu)});
  }
}

/// A batch of pixels whose memory nothing reads.
Batch listed_batch(const Graph& graph, std::int64_t size) {
  static constexpr std::uint8_t pixel = 0;
  const ImageShape image = image_shape(graph.input_shape());
  Batch batch;
  batch.size = size;
  batch.pixels.data = &pixel;
  batch.pixels.height = static_cast<std::int32_t>(image.height);
  batch.pixels.width = static_cast<std::int32_t>(image.width);
  return batch;
}

/// Of norms whose collectives are not part of the prediction.
class NoNormExchange final : public NormExchange {
 public:
  void sum(std::span<double>) override {}
  void sum(std::span<float>) override {}
  void await(FunctionRef<bool()>) override {}
};

std::vector<std::size_t> bucket_ends(const ArenaLayout& layout, const Config& config) {
  std::vector<std::size_t> ends;
  for (const Bucket& bucket : plan_buckets(layout, 0, bucket_bytes(config)))
    ends.push_back(bucket.end);
  return ends;
}

}  // namespace

LaunchCost& LaunchCost::operator+=(const LaunchCost& more) noexcept {
  launches += more.launches;
  bytes += more.bytes;
  operations += more.operations;
  seconds += more.seconds;
  seconds_at_peak += more.seconds_at_peak;
  return *this;
}

LaunchCost StepModel::total() const {
  LaunchCost sum;
  for (const ModelledLaunch& launch : launches) sum += launch.cost;
  return sum;
}

std::map<std::string, LaunchCost> StepModel::by_kernel() const {
  std::map<std::string, LaunchCost> sums;
  for (const ModelledLaunch& launch : launches) sums[launch.kernel] += launch.cost;
  return sums;
}

StepModel model_step(const Graph& graph, const Config& config, const GpuSpec& gpu) {
  require_recompute(config.recompute, DeviceChoice::cuda);
  const auto device = make_listing_device();
  NoNormExchange norms;
  const auto engine =
      make_device_engine(device, graph,
                         {.precision = config.precision,
                          .norms = config.batch_norm == BatchNormScope::sync ? &norms : nullptr,
                          .records = false,
                          .recompute = config.recompute});
  const std::vector<std::size_t> ends = bucket_ends(engine->layout(), config);
  const auto program =
      engine->compile({.batch_size = config.batch_size, .training = true, .bucket_ends = ends});
  const auto optimizer = make_device_optimizer(device, config, engine->layout());
  std::vector<StepTime> steps = program->time_steps(listed_batch(graph, config.batch_size));
  // The first step reads pixels, of a byte each, in place of the fp32 values that it may read.
  const auto pixels = static_cast<std::size_t>(config.batch_size * graph.input_shape().elements());
  steps.front().bytes -= pixels * (sizeof(float) - 1);
  const std::vector<std::vector<Launch>> launches = device->take_timed();
  StepModel model;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    add_step(model, steps[i], launches[i], config, gpu);
  }
  static_cast<void>(device->take_launches());
  optimizer->update(0, engine->layout().size(), engine->parameters(), engine->gradients(),
                    {.lr = 1});
  add_step(model, {.name = "update"}, device->take_launches(), config, gpu);
  return model;
}

}  // namespace lockstep::gpu
