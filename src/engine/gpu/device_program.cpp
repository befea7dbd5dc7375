#include "device_program.hpp"

#include "../lowering/lowering.hpp"
#include "kernels/pooled_norm.hpp"
#include "lockstep/core/error.hpp"

#include <limits>

namespace lockstep::gpu {
namespace {

LossExtent loss_extent(const GraphLoss& loss, std::int64_t batch_size) {
  return {.batch = batch_size,
          .classes = loss.classes,
          .padded = padded_channels(loss.classes),
          .measures_confidence = loss.measures_confidence};
}

/// Of the engine's graph, which says what is frozen; another size's has the same nodes.
StepGraph steps_of(const EngineState& state, const ProgramOptions& options) {
  // A norm cannot compute another one's parameter gradients if parameters are available only during
  // their own unit's steps.
  const ParameterArena& arena = state.arena;
  const Fusions fusions{.pairs_norms = arena.holds_parameters() && arena.holds_gradients(),
                        .pools = [](const PoolOptions& pool) {
                          return pools_with_norm(pool.kernel, pool.stride, pool.padding);
                        }};
  return make_steps(state.graph, options, arena,
                    {.fusions = fusions, .recompute = state.recompute});
}

}  // namespace

DeviceProgram::DeviceProgram(std::shared_ptr<EngineState> state, const ProgramOptions& options)
    : state_(std::move(state)),
      options_(checked_options(options, state_->arena, state_->graph)),
      graph_loss_(loss_of(options, state_->graph)),
      statistics_(*state_->device, graph_of(options, state_->graph), options.batch_size),
      loss_(*state_->device, loss_extent(graph_loss_, options.batch_size)),
      targets_(*state_->device, static_cast<std::size_t>(options.batch_size)),
      dropped_(*state_->device, static_cast<std::size_t>(options.batch_size)),
      fetched_(state_->device->make_event()) {
  lower_all();
  if (state_->activations.size() < lists_.plan.total_bytes) {
    state_->device->synchronize();
    state_->activations = {};  // freed first, so that the two never exist together
    state_->activations = DeviceArray<std::byte>(*state_->device, lists_.plan.total_bytes);
    state_->computed_by = nullptr;
  }
}

DeviceProgram::~DeviceProgram() {
  if (!pending_) return;
  try {
    await_ranks();
  } catch (const Error&) {
    // It has ended the collectives, so the wait below ends too.
  }
  try {
    state_->device->wait(*fetched_);
  } catch (const Error&) {
    // The device's failure is already being reported.
  }
}

void DeviceProgram::lower_all() {
  const Graph& graph = graph_of(options_, state_->graph);
  const StepGraph steps = steps_of(*state_, options_);
  ProgramBuilder builder(*state_, statistics_, steps, options_);
  const DataType type = state_->type;

  input_extent_ = builder.extent(graph.input()).image();
  value_bytes_ = static_cast<std::size_t>(input_extent_.batch * input_extent_.height *
                                          input_extent_.width * input_extent_.channels) *
                 sizeof(float);
  values_ = builder.make(value_bytes_);
  const Tensor input = builder.make_like(graph.input());
  builder.emit("input images", {values_, input}, [this, input, type](const LaunchContext& context) {
    if (context.stored != nullptr) {
      cut_images(context.stream(), type, input_extent_, *context.stored, context.at(input));
      state_->input.release();
    } else {
      pack_images(context.stream(), type, input_extent_, context.as<float>(values_),
                  context.at(input));
    }
  });
  builder.set_value(graph.input(), input);
  builder.emit("weights in the type of values", {}, [this](const LaunchContext& context) {
    state_->working.refresh(context.device, state_->arena);
  });
  const DataType logits_type = ends_in_linear(graph) ? DataType::f32 : type;
  StepLowering<ProgramBuilder>(graph, steps)
      .run(builder, {.forward =
                         [&](const StepOp& op) {
                           const Tensor logits = builder.value(op.inputs[0]);
                           builder.emit("loss", {logits},
                                        [this, logits, logits_type](const LaunchContext& context) {
                                          loss_forward(context.stream(), logits_type,
                                                       loss_.extent(), graph_loss_.terms,
                                                       {.logits = context.at(logits),
                                                        .targets = context.targets,
                                                        .samples = context.samples},
                                                       loss_.outputs());
                                          loss_.fetch(context.device);
                                          if (options_.training) statistics_.fetch(context.device);
                                        });
                         },
                     .backward =
                         [&](const StepOp& op) {
                           builder.begin_backward();
                           const Tensor gradient = builder.make_like(graph_loss_.logits);
                           builder.emit("gradient of the loss", {gradient},
                                        [this, gradient, type](const LaunchContext& context) {
                                          loss_backward(context.stream(), type, loss_.extent(),
                                                        graph_loss_.terms, loss_.outputs(),
                                                        context.targets, loss_.scale(),
                                                        context.at(gradient));
                                        });
                           builder.set_value(*op.output, gradient);
                         }});
  lists_ = builder.take();
  Device& device = *state_->device;
  forward_.emplace(device, std::span(lists_.forward).subspan(1), state_->records);
  backward_.emplace(device, lists_.backward, state_->records);
}

LaunchContext DeviceProgram::launch_context(const BackwardOptions& options) {
  return {.device = *state_->device,
          .base = state_->activations.data(),
          .offsets = lists_.plan.offsets,
          .targets = targets_.get(),
          .dropped = {.masks = dropped_.data()},
          .stored = nullptr,
          .samples = samples_,
          // Gradients that are not held accumulate where they are reduced.
          .accumulate = options.accumulate && state_->arena.holds_gradients(),
          .reduces = options.reduces};
}

LaunchContext DeviceProgram::take(const Batch& batch) {
  require_batch(options_, batch.size);
  if (pending_) wait();  // the host buffers of the last call's copies are reused
  samples_ = batch.size;
  state_->computed_by = this;
  Device& device = *state_->device;
  const bool on_device = batch.pixels.data != nullptr;
  if (on_device) input_ = state_->input.take(batch, input_extent_);
  const auto copy = [&](void* to, const void* from, std::size_t bytes) {
    on_device ? device.copy_on_device(to, from, bytes) : device.copy_to_device(to, from, bytes);
  };
  const auto samples = static_cast<std::size_t>(batch.size);
  targets_.load(on_device ? input_.targets : batch.targets, samples, copy);
  dropped_.load((on_device ? input_.dropped : batch.dropped).masks, samples, copy);
  LaunchContext context = launch_context({});
  if (on_device) {
    context.stored = &input_.images;
  } else {
    device.copy_to_device(context.at(values_), batch.values, value_bytes_);
  }
  return context;
}

void DeviceProgram::forward(const Batch& batch) {
  Device& device = *state_->device;
  LaunchContext context = take(batch);
  if (!options_.training || state_->graph.has_fixed_statistics())
    statistics_.load(device, state_->running_statistics.span());
  DeviceTimeline* const timeline = timeline_now();
  const Step& first = lists_.forward.front();
  timeline != nullptr ? timeline->run(first, context) : first.run(context);
  context.stored = nullptr;
  if (options_.exchange != nullptr && state_->arena.holds_parameters()) {
    for (std::size_t unit = state_->arena.layout().units.size(); unit-- > 0;) {
      options_.exchange->await_gather(unit);
    }
  }
  DeviceStopwatch* const stopwatch = options_.training ? state_->stopwatch.get() : nullptr;
  forward_->run(context, nullptr, {.timeline = timeline, .stopwatch = stopwatch});
  if (stopwatch != nullptr) stopwatch->stop();
  device.mark(*fetched_, Device::Queue::work);
  pending_ = true;
}

DeviceTimeline* DeviceProgram::timeline_now() const noexcept {
  DeviceTimeline* const timeline = state_->timeline.get();
  return timeline != nullptr && timeline->wants() ? timeline : nullptr;
}

std::vector<StepTime> DeviceProgram::time_steps(const Batch& batch) {
  const LaunchContext context = take(batch);
  loss_.set_scale(*state_->device, 1);
  state_->device->synchronize();
  std::vector<StepTime> times;
  for (const auto* list : {&lists_.forward, &lists_.backward}) {
    for (const Step& step : *list) {
      if (!step.runs(context.reduces)) continue;
      times.push_back({.name = step.name,
                       .seconds = state_->device->time([&] { step.run(context); }),
                       .bytes = step.bytes});
    }
  }
  return times;
}

void DeviceProgram::await_ranks() {
  const auto reached = [this] { return state_->device->has_reached(*fetched_); };
  if (options_.exchange != nullptr && state_->arena.layout().is_sharded()) {
    options_.exchange->await(reached);
  } else if (state_->norms != nullptr) {
    state_->norms->await(reached);
  }
}

void DeviceProgram::wait() {
  await_ranks();
  state_->device->wait(*fetched_);
  if (options_.training) statistics_.publish();
  pending_ = false;
}

BatchMetrics DeviceProgram::metrics() {
  if (pending_) wait();
  BatchMetrics metrics = loss_.metrics(samples_);
  if (!statistics_.statistics().finite()) metrics.loss = std::numeric_limits<double>::quiet_NaN();
  return metrics;
}

std::span<const float> DeviceProgram::batch_statistics() {
  if (pending_) wait();
  return statistics_.statistics().concatenated();
}

std::span<const float> DeviceProgram::logits() {
  return loss_.logits(*state_->device);
}

void DeviceProgram::backward(const BackwardOptions& options) {
  require_backward(options_);
  if (state_->computed_by != this) {
    fail(ExitStatus::internal, "backward cannot run (another program took forward's memory)");
  }
  DeviceStopwatch& stopwatch = *state_->stopwatch;
  loss_.set_scale(*state_->device, options.loss_scale);
  backward_->run(launch_context(options), options_.exchange,
                 {.timeline = timeline_now(), .stopwatch = &stopwatch});
  stopwatch.stop_backward();
}

}  // namespace lockstep::gpu
