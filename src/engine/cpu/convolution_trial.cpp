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

/// visit(descriptor) for the step's primitive by that algorithm.
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

/// A step's primitive, and values to run it on.
class Trial final {
 public:
  Trial(const ConvolutionProblem& problem, bool winograd, const dnnl::engine& engine)
      : stream_(engine) {
    with_primitive(problem, winograd, engine, [&]<typename PrimitiveDesc>(const PrimitiveDesc& pd) {
      using Pd = PrimitiveDesc;
      if constexpr (std::is_same_v<Pd, Convolution::Forward::primitive_desc>) {
        bind(engine, {{DNNL_ARG_SRC, pd.src_desc()},
                      {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                      {DNNL_ARG_DST, pd.dst_desc()}});
        primitive_ = Convolution::Forward(pd);
      } else if constexpr (std::is_same_v<Pd, Convolution::BackwardData::primitive_desc>) {
        bind(engine, {{DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                      {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                      {DNNL_ARG_DIFF_SRC, pd.diff_src_desc()}});
        primitive_ = Convolution::BackwardData(pd);
      } else {
        bind(engine, {{DNNL_ARG_SRC, pd.src_desc()},
                      {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                      {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}});
        primitive_ = Convolution::BackwardWeights(pd);
      }
      bind(engine, {{DNNL_ARG_SCRATCHPAD, pd.scratchpad_desc()}});
    });
  }

  void run() {
    primitive_.execute(stream_, arguments_);
    stream_.wait();
  }

 private:
  void bind(const dnnl::engine& engine, const std::vector<std::pair<int, Desc>>& descs) {
    for (const auto& [index, desc] : descs) {
      buffers_.emplace_back(std::max<std::size_t>(desc.get_size(), 1));
      std::ranges::fill(buffers_.back().span(), std::byte{0x3c});  // each value 0.0115
      arguments_.emplace(index, dnnl::memory(desc, engine, buffers_.back().data()));
    }
  }

  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::vector<AlignedBuffer<std::byte>> buffers_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

bool is_available(const ConvolutionProblem& problem) {
  return with_primitive(problem, true, dnnl::engine(dnnl::engine::kind::cpu, 0),
                        [](const auto& pd) { return is_winograd(pd); });
}

/// How often another process has taken a core from a thread of this one.
long preemptions() {
  rusage now{};
  getrusage(RUSAGE_SELF, &now);
  return now.ru_nivcsw;
}

/// What the calling thread has computed for.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Infinite where a thread had to leave its core.
double undisturbed_seconds(Trial& trial) {
  const long before = preemptions();
  const auto begin = Clock::now();
  trial.run();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return preemptions() == before ? seconds : std::numeric_limits<double>::infinity();
}

double thread_seconds(Trial& trial) {
  const double begin = cpu_seconds();
  trial.run();
  return cpu_seconds() - begin;
}

/// The least that `measure` finds for each algorithm, in turn.
template <typename Measure>
ConvolutionTimes least(const ConvolutionProblem& problem, Measure&& measure) {
  constexpr int fewest_rounds = 3;
  constexpr int most_rounds = 20;
  constexpr std::chrono::milliseconds longest{200};
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  Trial direct(problem, false, engine);
  Trial winograd(problem, true, engine);
  direct.run();
  winograd.run();
  constexpr double none = std::numeric_limits<double>::infinity();
  ConvolutionTimes times{.direct = none, .winograd = none};
  const auto begin = Clock::now();
  for (int round = 0; round < most_rounds; ++round) {
    if (round >= fewest_rounds && Clock::now() - begin > longest) break;
    times.direct = std::min(times.direct, measure(direct));
    times.winograd = std::min(times.winograd, measure(winograd));
  }
  return times;
}

ConvolutionTimes time(const ConvolutionProblem& problem) {
  const ConvolutionTimes times = least(problem, undisturbed_seconds);
  if (std::isfinite(times.direct + times.winograd)) return times;
  // The machine is busy with other work, and threads that wait for one another would time that: by
  // what a single one computes.
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const ConvolutionTimes alone = least(problem, thread_seconds);
  omp_set_num_threads(threads);
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

bool has_winograd(const WinogradShape& shape, ConvolutionStep step) {
  return cpu::checked("asking for Winograd's algorithm", [&] {
    return cpu::is_available(
        {.shape = shape, .step = step, .batch_size = cpu::nominal_batch, .threads = 0});
  });
}

std::optional<ConvolutionTimes> time_convolution(const ConvolutionProblem& problem) {
  return cpu::checked("timing the convolution " + problem.shape.text(),
                      [&]() -> std::optional<ConvolutionTimes> {
                        if (problem.threads > 0) omp_set_num_threads(problem.threads);
                        if (!cpu::is_available(problem)) return std::nullopt;
                        return cpu::time(problem);
                      });
}

int engine_threads(int asked) {
  return asked > 0 ? asked : omp_get_max_threads();
}

std::string onednn_description() {
  return cpu::library_version() + ", " + cpu::instruction_set();
}

}  // namespace lockstep
