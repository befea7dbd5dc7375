#include "cpu_program.hpp"

#include "lowering.hpp"

#include <omp.h>
#include <chrono>

#include <limits>
#include <utility>

namespace lockstep::cpu {
namespace {

SoftmaxLoss::Options loss_options(const Graph& graph, std::int64_t batch_size) {
  const auto& loss = std::get<SoftmaxCrossEntropy>(graph.nodes().back().op);
  return {.batch_size = batch_size,
          .classes = graph.nodes()[static_cast<std::size_t>(loss.input)].output[0],
          .label_smoothing = loss.options.label_smoothing};
}

std::unique_ptr<Lowering> lower_node(const Node& node, const LoweringContext& context) {
  return std::visit(
      [&](const auto& op) -> std::unique_ptr<Lowering> {
        using T = std::decay_t<decltype(op)>;
        // The program itself loads the images and computes the loss.
        if constexpr (std::is_same_v<T, Input> || std::is_same_v<T, SoftmaxCrossEntropy>) {
          return nullptr;
        } else {
          return lower(op, context);
        }
      },
      node.op);
}

}  // namespace

CpuProgram::CpuProgram(std::shared_ptr<EngineState> state, const ProgramBuilder::Options& options)
    : state_(std::move(state)),
      options_(options),
      loss_(loss_options(state_->graph, options.batch_size)),
      statistics_(state_->graph, options.batch_size) {
  if (options.batch_size < 1) {
    fail(ExitStatus::usage, "a batch of {} samples cannot be compiled (at least 1 is needed)",
         options.batch_size);
  }
  omp_set_num_threads(state_->threads);
  checked("compiling " + state_->graph.name(), [this] { lower_all(); });
  pool_key_ = state_->pool.attach(buffers_.plan.total_bytes, [this](std::byte* base) {
    buffers_.place(base);
    for (const auto& step : lists_.steps) step->bind();
  });
}

CpuProgram::~CpuProgram() {
  state_->pool.detach(pool_key_);
}

void CpuProgram::lower_all() {
  ProgramBuilder builder(*state_, statistics_, options_);
  const Graph& graph = state_->graph;

  // Always a copy: a batch is only valid during forward, and backward may need the images.
  const Tensor source = builder.fixed(plain(builder.batch_shape(graph.input())), nullptr);
  images_ = source.memory;
  const Tensor input =
      builder.make(plain(builder.batch_shape(graph.input()), builder.activations()));
  builder.emit_copy("input images", source, input);
  builder.set_value(graph.input(), input);
  if (!options_.training) {
    builder.emit("running statistics", {}, [this](void*) {
      statistics_.statistics.load(state_->running_statistics.span(), statistics_.block.span());
    });
  }
  std::vector<std::unique_ptr<Lowering>> lowerings;
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    lowerings.push_back(
        lower_node(graph.nodes()[id],
                   {.graph = graph, .analysis = state_->analysis, .id = static_cast<ValueId>(id)}));
    if (lowerings.back()) lowerings.back()->forward(builder);
  }
  const ValueId logits_id = std::get<SoftmaxCrossEntropy>(graph.nodes().back().op).input;
  const Desc logits_desc = plain(builder.batch_shape(logits_id));
  const Tensor logits = builder.in_format(builder.value(logits_id), logits_desc, "logits");
  builder.emit("loss", logits, [this](void* values) {
    loss_.forward(static_cast<const float*>(values), call_.labels, call_.samples);
  });

  if (options_.training) {
    builder.emit("statistics to the host", {},
                 [this](void*) { statistics_.statistics.publish(statistics_.block.span()); });
    builder.begin_backward();
    const Tensor gradient = builder.make(logits_desc);
    builder.emit("gradient of the loss", gradient, [this](void* values) {
      loss_.backward(call_.loss_scale, static_cast<float*>(values));
    });
    builder.contribute(logits_id, gradient, ProgramBuilder::Ownership::exclusive, "the loss");
    for (std::size_t id = graph.nodes().size(); id-- > 0;) {
      if (lowerings[id]) lowerings[id]->backward(builder);
    }
    builder.end_backward();
  }
  lists_ = builder.take_lists();
  buffers_ = builder.take_buffers();
}

void CpuProgram::take(const Batch& batch) {
  const bool size_fits = options_.training ? batch.size == options_.batch_size
                                           : batch.size >= 1 && batch.size <= options_.batch_size;
  if (!size_fits) {
    fail(ExitStatus::internal, "a batch of {} samples cannot run (the program is compiled for {})",
         batch.size, options_.batch_size);
  }
  omp_set_num_threads(state_->threads);  // per calling thread
  // The C function returns a status instead of throwing. The primitive only reads the images.
  const dnnl_status_t status =
      dnnl_memory_set_data_handle(images_.get(), const_cast<float*>(batch.images));
  if (status != dnnl_success) {
    fail(ExitStatus::internal, "oneDNN failed to take the input images (status {})",
         static_cast<int>(status));
  }
  call_.labels = batch.labels;
  call_.samples = batch.size;
}

void CpuProgram::run(const ListedStep& listed) {
  if (state_->timer == nullptr || !state_->timer->wants()) return listed.step->run();
  using Clock = std::chrono::steady_clock;
  const auto nanoseconds = [](Clock::time_point time) {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
  };
  const auto begin = Clock::now();
  listed.step->run();
  state_->timer->took(listed.step->name(), nanoseconds(begin), nanoseconds(Clock::now()));
}

void CpuProgram::forward(const Batch& batch) {
  take(batch);
  for (const ListedStep& listed : lists_.forward) {
    run(listed);
    if (state_->exchange != nullptr) state_->exchange->progress();
  }
}

std::vector<StepTime> CpuProgram::time_steps(const Batch& batch) {
  take(batch);
  call_.loss_scale = 1;
  std::vector<StepTime> times;
  for (const auto* list : {&lists_.forward, &lists_.backward_overwrite}) {
    for (const ListedStep& listed : *list) {
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

void CpuProgram::backward(const BackwardOptions& options, BackwardObserver& observer) {
  if (!options_.training) {
    fail(ExitStatus::internal, "backward cannot run (the program is compiled for inference)");
  }
  omp_set_num_threads(state_->threads);
  call_.loss_scale = options.loss_scale;
  const auto& steps = options.accumulate ? lists_.backward_accumulate : lists_.backward_overwrite;
  for (const ListedStep& listed : steps) {
    run(listed);
    observer.gradients_ready(listed.filled);
  }
}

}  // namespace lockstep::cpu
