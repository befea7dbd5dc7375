// winograd OUTPUT.json [ROUNDS [fp32|bf16]]: times each 3x3 convolution of our models by our
// Winograd algorithm, by oneDNN's where it has one, and directly, in turn, with all threads. The
// precision is that of the network's values. Prints a line per step.
#include "../src/engine/cpu/winograd.hpp"
#include "../src/engine/cpu/convolution.hpp"
#include "benchmark.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/convolution_trial.hpp"
#include "lockstep/models/models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>

namespace lockstep::benchmark {
namespace {

using cpu::Convolution;
using cpu::Desc;
using cpu::Dims;

struct Layer {
  WinogradShape shape;
  std::int64_t batch_size;
  cpu::DataType type;  ///< of source and target
};

/// One step of a layer, and what it works on.
class Problem final {
 public:
  Problem(const Layer& layer, ConvolutionStep step) : layer_(layer), step_(step) {
    const WinogradShape& s = layer.shape;
    const std::int64_t height = s.height + 2 * s.padding - 2;
    const std::int64_t width = s.width + 2 * s.padding - 2;
    const Dims weight{s.out_channels, s.in_channels, 3, 3};
    source_ = {Dims{layer.batch_size, s.in_channels, s.height, s.width}, layer.type, any};
    weight_ = {weight, layer.type, any};
    weight_gradient_ = {weight, cpu::DataType::f32, any};
    target_ = {Dims{layer.batch_size, s.out_channels, height, width}, layer.type, any};
    forward_ = forward(dnnl::algorithm::convolution_direct);
  }

  /// Runs the library's algorithm; empty if it does not have it.
  std::function<void()> library(dnnl::algorithm algorithm) {
    try {
      switch (step_) {
        case ConvolutionStep::forward: {
          const auto pd = forward(algorithm);
          return run<Convolution::Forward>(pd, {{DNNL_ARG_SRC, pd.src_desc()},
                                                {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                                {DNNL_ARG_DST, pd.dst_desc()}});
        }
        case ConvolutionStep::data_gradient: {
          const auto pd = backward<Convolution::BackwardData>(algorithm, source_, weight_, target_);
          return run<Convolution::BackwardData>(pd, {{DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                                                     {DNNL_ARG_WEIGHTS, pd.weights_desc()},
                                                     {DNNL_ARG_DIFF_SRC, pd.diff_src_desc()}});
        }
        case ConvolutionStep::weight_gradient: {
          const auto pd =
              backward<Convolution::BackwardWeights>(algorithm, source_, weight_gradient_, target_);
          return run<Convolution::BackwardWeights>(
              pd, {{DNNL_ARG_SRC, pd.src_desc()},
                   {DNNL_ARG_DIFF_DST, pd.diff_dst_desc()},
                   {DNNL_ARG_DIFF_WEIGHTS, pd.diff_weights_desc()}});
        }
      }
    } catch (const dnnl::error& error) {
      if (error.status != dnnl_unimplemented) throw;
    }
    return nullptr;
  }

  std::function<void()> own() {
    const cpu::WinogradPlan plan({.step = step_,
                                  .source = forward_.src_desc(),
                                  .target = forward_.dst_desc(),
                                  .padding = layer_.shape.padding},
                                 engine_threads(0));
    const dnnl::memory source = make(plan.source_desc());
    const dnnl::memory target = make(plan.target_desc());
    const bool backward = step_ == ConvolutionStep::data_gradient;
    const auto step = std::make_shared<cpu::WinogradStep>(
        "measured", plan,
        cpu::WinogradStep::Operands{.input = backward ? target : source,
                                    .weight = make(plan.weight_desc()),
                                    .output = backward ? source : target,
                                    .scratch = make(plan.scratch_desc())});
    return [step] { step->run(); };
  }

 private:
  static constexpr auto any = cpu::Tag::any;

  Convolution::Forward::primitive_desc forward(dnnl::algorithm algorithm) {
    return cpu::primitive_desc<Convolution::Forward>(
        engine_, attributes(), dnnl::prop_kind::forward_training, algorithm, source_, weight_,
        target_, stride_, padding(), padding());
  }
  template <typename Primitive>
  typename Primitive::primitive_desc backward(dnnl::algorithm algorithm, const Desc& source,
                                              const Desc& weight, const Desc& target) {
    return cpu::backward_primitive_desc<Primitive>(engine_, attributes(), forward_, algorithm,
                                                   source, weight, target, stride_, padding(),
                                                   padding());
  }
  [[nodiscard]] Dims padding() const { return {layer_.shape.padding, layer_.shape.padding}; }
  static dnnl::primitive_attr attributes() {
    dnnl::primitive_attr made;
    made.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return made;
  }

  dnnl::memory make(const Desc& desc) {
    buffers_.emplace_back(std::max<std::size_t>(desc.get_size(), 1));
    std::ranges::fill(buffers_.back().span(), std::byte{0x3c});  // each value is 0.0115
    return {desc, engine_, buffers_.back().data()};
  }
  template <typename Primitive>
  std::function<void()> run(const typename Primitive::primitive_desc& pd,
                            const std::map<int, Desc>& descs) {
    std::unordered_map<int, dnnl::memory> arguments;
    for (const auto& [index, desc] : descs) arguments.emplace(index, make(desc));
    arguments.emplace(DNNL_ARG_SCRATCHPAD, make(pd.scratchpad_desc()));
    return [this, primitive = Primitive(pd), arguments] {
      primitive.execute(stream_, arguments);
      stream_.wait();
    };
  }

  Layer layer_;
  ConvolutionStep step_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  Dims stride_{1, 1};
  Desc source_;
  Desc weight_;
  Desc weight_gradient_;
  Desc target_;
  Convolution::Forward::primitive_desc forward_;
  std::deque<AlignedBuffer<std::byte>> buffers_;
};

double seconds_of(const std::function<void()>& run) {
  const double begin = now();
  run();
  return now() - begin;
}

/// Median and range of the ratios of two programs' times, within each round.
Json ratios(const std::vector<double>& slower, const std::vector<double>& faster) {
  std::vector<double> each;
  for (std::size_t i = 0; i < slower.size(); ++i) each.push_back(slower[i] / faster[i]);
  const auto [least, most] = std::ranges::minmax(each);
  return {{"median", summarize(each).median}, {"min", least}, {"max", most}};
}

Json measure(const Layer& layer, ConvolutionStep step, int rounds) {
  Problem problem(layer, step);
  std::map<std::string, std::function<void()>> programs{
      {"own", problem.own()},
      {"library", problem.library(dnnl::algorithm::convolution_winograd)},
      {"direct", problem.library(dnnl::algorithm::convolution_direct)}};
  std::map<std::string, std::vector<double>> seconds;
  for (int round = -1; round < rounds; ++round) {  // the first is a warm-up
    for (auto& [name, program] : programs) {
      if (program == nullptr) continue;
      const double taken = seconds_of(program);
      if (round >= 0) seconds[name].push_back(taken);
    }
  }
  Json row{
      {"layer", layer.shape.text()}, {"batch_size", layer.batch_size}, {"step", to_string(step)}};
  for (const auto& [name, each] : seconds) row["seconds"][name] = summarize(each).median;
  for (const char* name : {"direct", "library"}) {
    if (seconds.contains(name))
      row["times_as_fast_as"][name] = ratios(seconds[name], seconds["own"]);
  }
  return row;
}

std::vector<Layer> layers(cpu::DataType type) {
  struct Case {
    const char* model;
    std::int64_t image_size;
    std::int64_t batch_size;
  };
  std::vector<Layer> found;
  for (const Case& each :
       {Case{"mini-resnet", 32, 64}, Case{"resnet18", 224, 32}, Case{"resnet50", 224, 32}}) {
    const Graph graph = make_model(
        each.model, {.image = {.channels = 3, .height = each.image_size, .width = each.image_size},
                     .classes = 10,
                     .width = 64,
                     .zero_init_residual = false,
                     .label_smoothing = 0});
    for (const Node& node : graph.nodes()) {
      const auto* op = std::get_if<Conv2d>(&node.op);
      const auto shape = op != nullptr ? winograd_shape(graph, *op) : std::nullopt;
      if (!shape || std::ranges::any_of(found, [&](const Layer& layer) {
            return layer.shape == *shape && layer.batch_size == each.batch_size;
          })) {
        continue;
      }
      found.push_back({.shape = *shape, .batch_size = each.batch_size, .type = type});
    }
  }
  return found;
}

int run(const char* path, int rounds, bool bf16) {
  Json result{{"benchmark", "Winograd's algorithm by layer"},
              {"library", onednn_description()},
              {"threads", engine_threads(0)},
              {"rounds", rounds},
              {"precision", bf16 ? "bf16" : "fp32"},
              {"rows", Json::array()}};
  for (const Layer& layer : layers(bf16 ? cpu::DataType::bf16 : cpu::DataType::f32)) {
    for (const ConvolutionStep step : convolution_steps) {
      const Json row = measure(layer, step, rounds);
      std::string line = fmt::format("{:<28} b{:<3} {:<16}", layer.shape.text(), layer.batch_size,
                                     to_string(step));
      for (const auto& [name, ratio] : row["times_as_fast_as"].items()) {
        line += fmt::format("  {}: {:.2f} ({:.2f}-{:.2f})", name, ratio["median"].get<double>(),
                            ratio["min"].get<double>(), ratio["max"].get<double>());
      }
      fmt::print("{}\n", line);
      result["rows"].push_back(row);
    }
  }
  std::ofstream file(path);
  file << result.dump(1) << '\n';
  file.close();
  if (file) return 0;
  fmt::print(stderr, "winograd: cannot write {}\n", path);
  return static_cast<int>(ExitStatus::cannot_write);
}

}  // namespace
}  // namespace lockstep::benchmark

int main(int argc, char** argv) {
  const std::string_view precision = argc > 3 ? argv[3] : "fp32";
  if (argc < 2 || argc > 4 || (precision != "fp32" && precision != "bf16")) {
    fmt::print(stderr, "usage: winograd OUTPUT.json [ROUNDS [fp32|bf16]]\n");
    return 64;
  }
  return lockstep::benchmark::run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : 20,
                                  precision == "bf16");
}
