#include "lockstep/engine/convolution_trial.hpp"

#include "convolution.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lowering.hpp"

#include <omp.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {
namespace cpu {
namespace {

using Clock = std::chrono::steady_clock;

Convolution convolution(const ConvolutionProblem& problem) {
  const WinogradShape& s = problem.shape;
  return Convolution({.name = s.text(),
                      .source = Shape{problem.batch_size, s.in_channels, s.height, s.width},
                      .weight = Shape{s.out_channels, s.in_channels, 3, 3},
                      .target = Shape{problem.batch_size, s.out_channels,
                                      s.height + 2 * s.padding - 2, s.width + 2 * s.padding - 2},
                      .stride = 1,
                      .padding = s.padding});
}

/// Calls visit(descriptor) for the step's primitive with that algorithm.
template <typename Visit>
auto with_primitive(const ConvolutionProblem& problem, bool winograd, const dnnl::engine& engine,
                    Visit&& visit) {
  const Convolution each = convolution(problem);
  const bool forward = problem.step == ConvolutionStep::forward;
  const auto hint = each.forward(dnnl::prop_kind::forward_training, forward && winograd, engine);
  if (forward) return visit(hint);
  if (problem.step == ConvolutionStep::data_gradient) {
    return visit(each.backward_data(hint, winograd, engine));
  }
  return visit(each.backward_weights(hint, winograd, engine));
}

/// A step's primitive with operands, and the reorder between its weight format and the arena's if
/// they differ.
class Trial final {
 public:
  Trial(const ConvolutionProblem& problem, bool winograd, const dnnl::engine& engine)
      : engine_(engine), stream_(engine) {
    const Desc weights = convolution(problem).weight_format(engine);
    with_primitive(problem, winograd, engine, [&]<typename PrimitiveDesc>(const PrimitiveDesc& pd) {
      using Pd = PrimitiveDesc;
      if constexpr (std::is_same_v<Pd, Convolution::Forward::primitive_desc>) {
        bind({{DNNL_ARG_SRC, pd.src_desc()}, {DNNL_ARG_DST, pd.dst_desc()}});
        bind_weights(DNNL_ARG_WEIGHTS, pd.weights_desc(), weights);
        primitive_ = Convolution::Forward(pd);
      } else if constexpr (std::is_same_v<Pd, Convolution::BackwardData::primitive_desc>) {
        bind({{DNNL_ARG_DIFF_DST, pd.diff_dst_desc()}, {DNNL_ARG_DIFF_SRC, pd.diff_src_desc()}});
        bind_weights(DNNL_ARG_WEIGHTS, pd.weights_desc(), weights);
        primitive_ = Convolution::BackwardData(pd);
      } else {
        bind({{DNNL_ARG_SRC, pd.src_desc()}, {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()}});
        bind_weights(DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc(), weights);
        primitive_ = Convolution::BackwardWeights(pd);
      }
      bind({{DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
    });
  }

  void run() {
    primitive_.execute(stream_, arguments_);
    if (reorder_) reorder_.execute(stream_, reordered_);
    stream_.wait();
  }

 private:
  dnnl::memory make(const Desc& desc) {
    buffers_.emplace_back(std::max<std::size_t>(desc.get_size(), 1));
    std::ranges::fill(buffers_.back().span(), std::byte{0x3c});  // each value is 0.0115
    return {desc, engine_, buffers_.back().data()};
  }
  void bind(const std::vector<std::pair<int, Desc>>& descs) {
    for (const auto& [index, desc] : descs) arguments_.emplace(index, make(desc));
  }
  void bind_weights(int index, const Desc& own, const Desc& arena) {
    bind({{index, own}});
    if (same_placement(own, arena)) return;
    dnnl::memory from = make(arena);
    dnnl::memory to = arguments_.at(index);
    if (index == DNNL_ARG_DIFF_WEIGHTS) std::swap(from, to);
    reorder_ = dnnl::reorder(from, to);
    reordered_ = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
  }

  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  dnnl::primitive reorder_;
  std::vector<AlignedBuffer<std::byte>> buffers_;
  std::unordered_map<int, dnnl::memory> arguments_;
  std::unordered_map<int, dnnl::memory> reordered_;
};

/// Sets the number of OpenMP threads of the calling thread while it lives.
class Threads final {
 public:
  /// 0: leaves the number unchanged.
  explicit Threads(int count) : before_(omp_get_max_threads()) {
    if (count > 0) omp_set_num_threads(count);
  }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

/// Empty if the library lacks Winograd's algorithm for the problem.
std::optional<std::size_t> winograd_scratch(const ConvolutionProblem& problem) {
  using Size = std::optional<std::size_t>;
  return with_primitive(problem, true, dnnl::engine(dnnl::engine::kind::cpu, 0),
                        [](const auto& pd) {
                          return is_winograd(pd) ? Size(pd.scratchpad_desc().get_size()) : Size();
                        });
}

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
  Trial direct(problem, false, engine);
  Trial winograd(problem, true, engine);
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

bool has_winograd(const WinogradShape& shape, ConvolutionStep step) {
  return winograd_scratch_bytes(
             {.shape = shape, .step = step, .batch_size = cpu::nominal_batch, .threads = 0})
      .has_value();
}

std::optional<std::size_t> winograd_scratch_bytes(const ConvolutionProblem& problem) {
  return cpu::checked("asking for Winograd's algorithm", [&] {
    const cpu::Threads threads(problem.threads);
    return cpu::winograd_scratch(problem);
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
  return asked > 0 ? asked : omp_get_max_threads();
}

std::string onednn_description() {
  return cpu::library_version() + ", " + cpu::instruction_set();
}

}  // namespace lockstep
