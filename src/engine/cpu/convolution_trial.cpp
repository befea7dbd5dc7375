#include "lockstep/engine/convolution_trial.hpp"

#include "convolution.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lowering.hpp"
#include "threads.hpp"
#include "winograd.hpp"

#include <omp.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {
namespace cpu {
namespace {

using Clock = std::chrono::steady_clock;

Convolution convolution(const ConvolutionProblem& problem) {
  const WinogradShape& s = problem.shape;
  return Convolution(
      {.name = s.text(),
       .source = Shape{problem.batch_size, s.in_channels, s.height, s.width},
       .weight = Shape{s.out_channels, s.in_channels, 3, 3},
       .target = Shape{problem.batch_size, s.out_channels, s.height + 2 * s.padding - 2,
                       s.width + 2 * s.padding - 2},
       .stride = 1,
       .padding = s.padding,
       .activations = activation_type(problem.bf16 ? Precision::bf16 : Precision::fp32)});
}

/// One run of a step by an algorithm, with operands of its own in the formats of the direct
/// algorithm, and the weight in the arena's. Other formats are reordered.
class Trial {
 public:
  virtual ~Trial() = default;
  void run() {
    for (Reorder& each : before_) each.primitive.execute(stream_, each.arguments);
    compute();
    for (Reorder& each : after_) each.primitive.execute(stream_, each.arguments);
    stream_.wait();
  }

 protected:
  using Arguments = std::unordered_map<int, dnnl::memory>;

  explicit Trial(const dnnl::engine& engine) : engine_(engine), stream_(engine) {}
  virtual void compute() = 0;
  [[nodiscard]] dnnl::stream& stream() noexcept { return stream_; }

  [[nodiscard]] dnnl::memory make(const Desc& desc) {
    buffers_.emplace_back(std::max<std::size_t>(desc.get_size(), 1));
    std::ranges::fill(buffers_.back().span(), std::byte{0x3c});  // each value is 0.0115
    return {desc, engine_, buffers_.back().data()};
  }
  /// Reordered from `given` before each run if the formats differ.
  [[nodiscard]] dnnl::memory input(const Desc& own, const Desc& given) {
    dnnl::memory memory = make(own);
    if (!same_placement(own, given)) add_reorder(before_, make(given), memory);
    return memory;
  }
  /// Reordered to `wanted` after each run if the formats differ.
  [[nodiscard]] dnnl::memory output(const Desc& own, const Desc& wanted) {
    dnnl::memory memory = make(own);
    if (!same_placement(own, wanted)) add_reorder(after_, memory, make(wanted));
    return memory;
  }

 private:
  struct Reorder {
    dnnl::reorder primitive;
    Arguments arguments;
  };
  static void add_reorder(std::vector<Reorder>& list, const dnnl::memory& from,
                          const dnnl::memory& to) {
    list.push_back({.primitive = dnnl::reorder(from, to),
                    .arguments = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}});
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<AlignedBuffer<std::byte>> buffers_;
  std::vector<Reorder> before_;
  std::vector<Reorder> after_;
};

Convolution::Forward::primitive_desc forward(const ConvolutionProblem& problem,
                                             const dnnl::engine& engine) {
  return convolution(problem).forward(dnnl::prop_kind::forward_training, engine);
}

class DirectTrial final : public Trial {
 public:
  DirectTrial(const ConvolutionProblem& problem, const dnnl::engine& engine) : Trial(engine) {
    const Convolution each = convolution(problem);
    const auto hint = forward(problem, engine);
    const Desc weight = each.weight_format(engine);
    switch (problem.step) {
      case ConvolutionStep::forward:
        take<Convolution::Forward>(hint, {{DNNL_ARG_SRC, make(hint.src_desc())},
                                          {DNNL_ARG_WEIGHTS, input(hint.weights_desc(), weight)},
                                          {DNNL_ARG_DST, make(hint.dst_desc())}});
        break;
      case ConvolutionStep::data_gradient: {
        const auto pd = each.backward_data(hint, engine);
        take<Convolution::BackwardData>(pd, {{DNNL_ARG_DIFF_DST, make(pd.diff_dst_desc())},
                                             {DNNL_ARG_WEIGHTS, input(pd.weights_desc(), weight)},
                                             {DNNL_ARG_DIFF_SRC, make(pd.diff_src_desc())}});
        break;
      }
      case ConvolutionStep::weight_gradient: {
        const auto pd = each.backward_weights(hint, engine);
        take<Convolution::BackwardWeights>(
            pd, {{DNNL_ARG_SRC, make(pd.src_desc())},
                 {DNNL_ARG_DIFF_DST, make(pd.diff_dst_desc())},
                 {DNNL_ARG_DIFF_WEIGHTS, output(pd.diff_weights_desc(), weight)}});
        break;
      }
    }
  }

 private:
  template <typename Primitive>
  void take(const typename Primitive::primitive_desc& pd, Arguments arguments) {
    primitive_ = Primitive(pd);
    arguments_ = std::move(arguments);
    arguments_.emplace(DNNL_ARG_SCRATCHPAD, make(pd.scratchpad_desc()));
  }
  void compute() override { primitive_.execute(stream(), arguments_); }

  dnnl::primitive primitive_;
  Arguments arguments_;
};

WinogradPlan winograd_plan(const ConvolutionProblem& problem, const dnnl::engine& engine) {
  const auto direct = forward(problem, engine);
  return WinogradPlan({.step = problem.step,
                       .source = direct.src_desc(),
                       .target = direct.dst_desc(),
                       .padding = problem.shape.padding},
                      omp_get_max_threads());
}

class WinogradTrial final : public Trial {
 public:
  WinogradTrial(const ConvolutionProblem& problem, const dnnl::engine& engine) : Trial(engine) {
    const WinogradPlan plan = winograd_plan(problem, engine);
    const auto direct = forward(problem, engine);
    const Desc weight = convolution(problem).weight_format(engine);
    const auto source = [&] { return input(plan.source_desc(), direct.src_desc()); };
    const auto target = [&] { return input(plan.target_desc(), direct.dst_desc()); };
    WinogradStep::Operands operands;
    operands.scratch = make(plan.scratch_desc());
    switch (problem.step) {
      case ConvolutionStep::forward:
        operands.input = source();
        operands.weight = input(plan.weight_desc(), weight);
        operands.output = output(plan.target_desc(), direct.dst_desc());
        break;
      case ConvolutionStep::data_gradient:
        operands.input = target();
        operands.weight = input(plan.weight_desc(), weight);
        operands.output = output(plan.source_desc(), direct.src_desc());
        break;
      case ConvolutionStep::weight_gradient:
        operands.input = source();
        operands.output = target();
        operands.weight = output(plan.weight_desc(), weight);
        break;
    }
    step_.emplace(problem.shape.text(), plan, std::move(operands));
  }

 private:
  void compute() override { step_->run(); }
  std::optional<WinogradStep> step_;
};

/// CPU time of the calling thread.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double thread_seconds(Trial& trial) {
  const double begin = cpu_seconds();
  trial.run();
  return cpu_seconds() - begin;
}

/// Minimum of `measure` for each algorithm, run in turn.
template <typename Measure>
ConvolutionTimes least(const ConvolutionProblem& problem, Measure&& measure) {
  constexpr int fewest_rounds = 3;
  constexpr int most_rounds = 20;
  constexpr std::chrono::milliseconds usual{200};
  constexpr std::chrono::milliseconds longest{1000};
  constexpr double none = std::numeric_limits<double>::infinity();
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  DirectTrial direct(problem, engine);
  WinogradTrial winograd(problem, engine);
  const auto begin = Clock::now();
  direct.run();
  winograd.run();
  ConvolutionTimes times{.direct = none, .winograd = none};
  const auto enough = [&](int rounds) {
    const auto elapsed = Clock::now() - begin;
    if (rounds < fewest_rounds) return rounds > 0 && elapsed > longest;
    return elapsed > usual ||
           (rounds >= most_rounds && std::isfinite(times.direct + times.winograd));
  };
  for (int rounds = 0; !enough(rounds); ++rounds) {
    times.direct = std::min(times.direct, measure(direct));
    times.winograd = std::min(times.winograd, measure(winograd));
  }
  return times;
}

/// The times of least() for the problem's trial part, scaled to the whole batch.
template <typename Measure>
ConvolutionTimes least_of_part(const ConvolutionProblem& problem, Measure&& measure) {
  const ConvolutionProblem part = trial_part(problem, omp_get_max_threads());
  const ConvolutionTimes times = least(part, measure);
  const double scale =
      static_cast<double>(problem.batch_size) / static_cast<double>(part.batch_size);
  return {.direct = times.direct * scale, .winograd = times.winograd * scale};
}

ConvolutionTimes time(const ConvolutionProblem& problem,
                      const std::function<long()>& count_preemptions) {
  const auto undisturbed_seconds = [&](Trial& trial) {
    const long before = count_preemptions();
    const auto begin = Clock::now();
    trial.run();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return count_preemptions() == before ? seconds : std::numeric_limits<double>::infinity();
  };
  const ConvolutionTimes times = least_of_part(problem, undisturbed_seconds);
  if (std::isfinite(times.direct + times.winograd)) return times;
  // The machine is busy: with several threads, waiting for preempted threads would count. So this
  // times one thread over the whole batch and divides by the number of threads. Timing one thread's
  // part of the batch would count work done once for all samples, such as transforming weights, in
  // full.
  const int threads = omp_get_max_threads();
  const Threads one(1);
  const ConvolutionTimes alone = least_of_part(problem, thread_seconds);
  return {.direct = alone.direct / threads, .winograd = alone.winograd / threads};
}

}  // namespace
}  // namespace cpu

double ConvolutionProblem::operations() const {
  const auto values =
      static_cast<double>(batch_size * shape.out_channels * (shape.height + 2 * shape.padding - 2) *
                          (shape.width + 2 * shape.padding - 2));
  return values * static_cast<double>(shape.in_channels) * 2 * 9;
}

ConvolutionProblem trial_part(const ConvolutionProblem& problem, int threads) {
  constexpr double operations_per_thread = 8e9;
  const double each = problem.operations() / static_cast<double>(problem.batch_size);
  const double samples = std::clamp(operations_per_thread * threads / each, 1.0,
                                    static_cast<double>(problem.batch_size));
  ConvolutionProblem part = problem;
  part.batch_size = static_cast<std::int64_t>(samples);
  return part;
}

std::size_t winograd_scratch_bytes(const ConvolutionProblem& problem) {
  return cpu::checked("planning Winograd's algorithm", [&] {
    const cpu::Threads threads(problem.threads);
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    return cpu::winograd_plan(problem, engine).scratch_desc().get_size();
  });
}

long preemptions() {
  rusage now{};
  getrusage(RUSAGE_SELF, &now);
  return now.ru_nivcsw;
}

ConvolutionTimes time_convolution(const ConvolutionProblem& problem,
                                  const std::function<long()>& count_preemptions) {
  return cpu::checked("timing the convolution " + problem.shape.text(), [&] {
    const cpu::Threads threads(problem.threads);
    return cpu::time(problem, count_preemptions);
  });
}

int engine_threads(int asked) {
  const int limit = omp_get_thread_limit();
  if (asked > limit) {
    // With fewer threads than planned, oneDNN's own loops would wait for ever.
    fail(ExitStatus::usage,
         "--threads {} is more than OpenMP may start (OMP_THREAD_LIMIT is {}); raise the limit, or "
         "use --threads {}",
         asked, limit, limit);
  }
  return asked > 0 ? asked : std::min(omp_get_max_threads(), limit);
}

bool has_matrix_unit() {
  return cpu::has_instructions(dnnl::cpu_isa::avx512_core_amx);
}

std::string onednn_description() {
  return cpu::library_version() + ", " + cpu::instruction_set();
}

}  // namespace lockstep
