#include "cpu_program.hpp"

#include "../lowering/lowering.hpp"

#include <omp.h>
#include <chrono>

#include <limits>
#include <utility>

namespace lockstep::cpu {

CpuProgram::CpuProgram(std::shared_ptr<EngineState> state, const ProgramOptions& options)
    : state_(std::move(state)),
      options_(checked_options(options, state_->arena, state_->graph)),
      graph_loss_(loss_of(options, state_->graph)),
      loss_(graph_loss_, options.batch_size),
      statistics_(graph_of(options, state_->graph), options.batch_size) {
  omp_set_num_threads(state_->threads);
  checked("compiling " + state_->graph.name(), [this] { lower_all(); });
  pool_key_ = state_->pool.attach(buffers_.plan.total_bytes, [this](std::byte* base) {
    buffers_.place(base);
    for (const auto* list : {&forward_, &backward_}) {
      for (const ListedStep& listed : *list) listed.step->bind();
    }
  });
}

CpuProgram::~CpuProgram() {
  state_->pool.detach(pool_key_);
}

void CpuProgram::lower_all() {
  const Graph& graph = graph_of(options_, state_->graph);
  // Of the engine's graph, which says what is frozen; another's has the same nodes.
  const StepGraph steps =
      make_steps(state_->graph, options_, state_->arena,
                 {.fusions = cpu_fusions, .recompute = state_->recompute, .awaits_units = true});
  ProgramBuilder builder(*state_, statistics_, call_.dropped, steps, options_);

  // Always a copy: a batch is only valid during forward, and backward may need the input.
  const Tensor source = builder.fixed(plain(builder.batch_shape(graph.input())), nullptr);
  input_ = source.memory;
  const Tensor input =
      builder.make(plain(builder.batch_shape(graph.input()), builder.activations()));
  builder.emit_copy("input images", source, input);
  builder.set_value(graph.input(), input);
  if (!options_.training || state_->graph.has_fixed_statistics()) {
    builder.emit_loop("running statistics", {}, [this](const auto&) {
      statistics_.statistics.load(state_->running_statistics.span(), statistics_.block.span());
    });
  }
  const Desc logits_desc = plain(builder.batch_shape(graph_loss_.logits));
  StepLowering<ProgramBuilder>(graph, steps)
      .run(builder,
           {.forward =
                [&](const StepOp& op) {
                  const Tensor logits =
                      builder.in_format(builder.value(op.inputs[0]), logits_desc, "logits");
                  builder.emit_loop("loss", {logits}, [this](const LoopStep::Addresses& at) {
                    loss_.forward(static_cast<const float*>(at[0]), call_.targets, call_.samples);
                  });
                  if (!options_.training) return;
                  builder.emit_loop("statistics to the host", {}, [this](const auto&) {
                    statistics_.statistics.publish(statistics_.block.span());
                  });
                },
            .backward =
                [&](const StepOp& op) {
                  builder.begin_backward();
                  const Tensor gradient = builder.make(logits_desc);
                  builder.emit_loop("gradient of the loss", {gradient},
                                    [this](const LoopStep::Addresses& at) {
                                      loss_.backward(call_.loss_scale, static_cast<float*>(at[0]));
                                    });
                  builder.set_value(*op.output, gradient);
                }});
  forward_ = builder.take_forward();
  backward_ = builder.take_backward();
  buffers_ = builder.take_buffers();
}

void CpuProgram::take(const Batch& batch) {
  require_batch(options_, batch.size);
  omp_set_num_threads(state_->threads);  // per calling thread
  // The C function returns a status instead of throwing. The primitive only reads the values.
  const dnnl_status_t status =
      dnnl_memory_set_data_handle(input_.get(), const_cast<float*>(batch.values));
  if (status != dnnl_success) {
    fail(ExitStatus::internal, "oneDNN failed to take the input images (status {})",
         static_cast<int>(status));
  }
  call_.targets = batch.targets;
  call_.dropped = batch.dropped;
  call_.samples = batch.size;
}

void CpuProgram::run(Step& step) {
  if (state_->timer == nullptr || !state_->timer->wants()) return step.run();
  using Clock = std::chrono::steady_clock;
  const auto nanoseconds = [](Clock::time_point time) {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
  };
  const auto begin = Clock::now();
  step.run();
  state_->timer->took(step.name(), nanoseconds(begin), nanoseconds(Clock::now()));
}

void CpuProgram::run(const std::vector<ListedStep>& steps, const BackwardOptions& options) {
  for (const ListedStep& listed : steps) {
    if (listed.runs(options)) run(*listed.step);
    if (options_.exchange != nullptr) options_.exchange->progress();
  }
}

void CpuProgram::forward(const Batch& batch) {
  take(batch);
  run(forward_, {});
}

std::vector<StepTime> CpuProgram::time_steps(const Batch& batch) {
  take(batch);
  call_.loss_scale = 1;
  std::vector<StepTime> times;
  for (const auto* list : {&forward_, &backward_}) {
    for (const ListedStep& listed : *list) {
      if (!listed.runs({})) continue;
      const auto begin = std::chrono::steady_clock::now();
      listed.step->run();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      times.push_back({.name = std::string(listed.step->name()), .seconds = seconds.count()});
    }
  }
  return times;
}

BatchMetrics CpuProgram::metrics() {
  BatchMetrics metrics = loss_.metrics();
  if (!statistics_.statistics.finite()) metrics.loss = std::numeric_limits<double>::quiet_NaN();
  return metrics;
}

void CpuProgram::backward(const BackwardOptions& options) {
  require_backward(options_);
  omp_set_num_threads(state_->threads);
  call_.loss_scale = options.loss_scale;
  run(backward_, options);
}

}  // namespace lockstep::cpu
