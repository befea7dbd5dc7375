#include "lockstep/engine/cpu_engine.hpp"

#include "cpu_program.hpp"
#include "lockstep/core/vectors.hpp"
#include "lockstep/engine/convolution_trial.hpp"
#include "lowering.hpp"

#include <omp.h>

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep {
namespace cpu {
namespace {

/// Each parameter's format in the arenas.
std::vector<Desc> arena_formats(const Graph& graph, const WeightFormatOptions& options) {
  std::vector<Desc> formats;
  for (const Parameter& parameter : graph.parameters()) formats.push_back(plain(parameter.shape));
  for (std::size_t id = 0; id < graph.nodes().size(); ++id) {
    const Node& node = graph.nodes()[id];
    const LoweringContext context{.graph = graph, .id = static_cast<ValueId>(id)};
    std::visit(
        [&](const auto& op) {
          using T = std::decay_t<decltype(op)>;
          if constexpr (std::is_same_v<T, Conv2d> || std::is_same_v<T, Linear>) {
            Desc& format = formats[static_cast<std::size_t>(node.parameters[0])];
            const Desc chosen = weight_format(op, context, options);
            // Only a blocked format has an offset for each element (a packed one has none).
            if (is_blocked(chosen) && in_type(chosen, DataType::bf16)) format = chosen;
          }
        },
        node.op);
  }
  return formats;
}

bool has_bf16_instructions() {
  return has_instructions(dnnl::cpu_isa::avx512_core_bf16);
}

/// "Winograd's algorithm in 9 of 12 steps of 3x3 convolutions"; empty if in none.
std::string describe(const Graph& graph, const ConvolutionChoices& choices, bool bf16) {
  int steps = 0;
  int winograd = 0;
  for (const Node& node : graph.nodes()) {
    const auto* op = std::get_if<Conv2d>(&node.op);
    const auto shape = op != nullptr ? winograd_shape(graph, *op) : std::nullopt;
    if (!shape || !choices.contains(*shape)) continue;
    for (const ConvolutionStep step : convolution_steps) {
      ++steps;
      if (choices.winograd(*shape, step)) ++winograd;
    }
  }
  if (winograd == 0) return "";
  return fmt::format(", Winograd's algorithm{} in {} of {} steps of 3x3 convolutions",
                     bf16 ? " (in fp32)" : "", winograd, steps);
}

std::shared_ptr<EngineState> make_state(const Graph& graph, const CpuEngineOptions& options) {
  const DataType activations = activation_type(options.precision);
  const int threads = engine_threads(options.threads);
  omp_set_num_threads(threads);  // formats may depend on the number of threads
  require_complete(graph);
  return checked("making the CPU engine", [&] {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    std::vector<Desc> formats =
        arena_formats(graph, {.engine = engine, .activations = activations});
    std::vector<ParameterFormat> offsets;
    offsets.reserve(formats.size());
    for (const Desc& format : formats) {
      offsets.push_back({.size = padded_size(format), .offsets = element_offsets(format)});
    }
    CpuMemory memory;
    ParameterArena arena(
        graph,
        {.formats = std::move(offsets), .tail_size = options.tail_size, .units = options.units},
        [&](std::size_t count, ParameterArena::Use) { return memory.allocate(count); });
    return std::make_shared<EngineState>(
        EngineState{.graph = graph,
                    .threads = threads,
                    .recompute = of_cpus(options.recompute),
                    .activations = activations,
                    .convolutions = options.convolutions,
                    .sum_over_ranks = options.sum_over_ranks,
                    .engine = engine,
                    .stream = dnnl::stream(engine),
                    .memory = memory,
                    .arena = std::move(arena),
                    .formats = std::move(formats),
                    .running_statistics = initial_running_statistics(graph),
                    .pool = {}});
  });
}

class CpuEngine final : public Engine {
 public:
  CpuEngine(const Graph& graph, const CpuEngineOptions& options)
      : state_(make_state(graph, options)) {}

  [[nodiscard]] std::string description() const override {
    const bool bf16 = state_->activations == DataType::bf16;
    const std::string_view precision =
        !bf16                     ? "fp32"
        : has_bf16_instructions() ? "bf16"
                                  : "bf16 by conversion (no instructions for it: slower than fp32)";
    return fmt::format("{}, {} loops, {}, {} thread{}{}", onednn_description(),
                       vector_loops::name_of(vector_loops::widest()), precision, state_->threads,
                       state_->threads == 1 ? "" : "s",
                       describe(state_->graph, state_->convolutions, bf16));
  }
  [[nodiscard]] const Graph& graph() const noexcept override { return state_->graph; }
  [[nodiscard]] InputFormat input_format() noexcept override {
    return {.layout = ImageLayout::nchw};
  }
  [[nodiscard]] EngineMemory& memory() noexcept override { return state_->memory; }
  [[nodiscard]] std::shared_ptr<const ParameterArena> arena() const noexcept override {
    return {state_, &state_->arena};
  }
  [[nodiscard]] std::span<float> running_statistics() noexcept override {
    return state_->running_statistics.span();
  }
  void set_step_timer(StepTimer& timer) override { state_->timer = &timer; }
  [[nodiscard]] std::unique_ptr<Program> compile(const ProgramOptions& options) override {
    return std::make_unique<CpuProgram>(state_, options);
  }

 private:
  std::shared_ptr<EngineState> state_;
};

}  // namespace
}  // namespace cpu

bool cpu_computes_in(Precision precision) {
  if (precision == Precision::fp32) return true;
  // oneDNN can emulate bf16 without its instructions, but always needs AVX-512.
  return precision == Precision::bf16 && cpu::has_instructions(dnnl::cpu_isa::avx512_core);
}

std::unique_ptr<Engine> make_cpu_engine(const Graph& graph, const CpuEngineOptions& options) {
  return std::make_unique<cpu::CpuEngine>(graph, options);
}

}  // namespace lockstep
