// Convolution and pooling.

#include "lockstep/core/error.hpp"
#include "lockstep/graph/ops.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
namespace {

/// Extents of the output of square windows that may not extend past the padded image.
template <typename Options>
Shape windows_output(const std::string& layer, std::int64_t channels, const Shape& in,
                     const Options& options) {
  const auto output = [&](std::int64_t extent) {
    if (options.kernel > extent + 2 * options.padding) {
      fail(ExitStatus::usage,
           "{}: a kernel of {} is larger than its input of {} with padding {} (nothing is left); "
           "use larger images",
           layer, options.kernel, extent, options.padding);
    }
    return (extent + 2 * options.padding - options.kernel) / options.stride + 1;
  };
  return {channels, output(in[1]), output(in[2])};
}

template <typename Options>
void require_window(const std::string& layer, const Options& options) {
  if (options.kernel >= 1 && options.stride >= 1 && options.padding >= 0) return;
  fail(ExitStatus::usage, "{}: kernel {}, stride {}, padding {} (they must be at least 1, 1 and 0)",
       layer, options.kernel, options.stride, options.padding);
}

template <typename Options>
void require_pooling(const std::string& layer, const Options& options) {
  if (2 * options.padding > options.kernel) {
    fail(ExitStatus::usage, "{}: padding {} is more than half of the kernel {}", layer,
         options.padding, options.kernel);
  }
  require_window(layer, options);
}

template <typename Options>
std::string function_of(const Options& options) {
  return fmt::format(" k{} s{} p{}", options.kernel, options.stride, options.padding);
}

template <typename Options>
OnnxNode windows_of(const char* type, const Options& options) {
  return {.type = type,
          .attributes = {{"kernel_shape", std::vector(2, options.kernel)},
                         {"pads", std::vector(4, options.padding)},
                         {"strides", std::vector(2, options.stride)}}};
}

}  // namespace

OpDefinition Conv2d::define(const OpInputs& in) const {
  const Shape& image = in.image(options.name);
  if (options.out_channels < 1) {
    fail(ExitStatus::usage, "{}: {} output channels (at least 1 is needed)", options.name,
         options.out_channels);
  }
  if (options.groups < 1 || image[0] % options.groups != 0 ||
      options.out_channels % options.groups != 0) {
    fail(
        ExitStatus::usage,
        "{}: {} groups do not divide {} input and {} output channels (groups must be equal); use a "
        "common divisor",
        options.name, options.groups, image[0], options.out_channels);
  }
  require_window(options.name, options);
  const Shape weight{options.out_channels, image[0] / options.groups, options.kernel,
                     options.kernel};
  const std::int64_t fan_in = weight.elements() / options.out_channels;
  OpDefinition result{.output = windows_output(options.name, options.out_channels, image, options),
                      .function = function_of(options)};
  const auto add = [&](const char* suffix, const Shape& shape, ParameterKind kind,
                       const InitialValues& initial) {
    result.parameters.push_back({.name = options.name + suffix,
                                 .shape = shape,
                                 .kind = kind,
                                 .initialization = initial.initialization,
                                 .fan_in = fan_in,
                                 .deviation = initial.deviation});
  };
  using enum Initialization;
  add(".weight", weight, ParameterKind::weight,
      options.initial_weight.value_or(InitialValues{kaiming_normal_fan_out}));
  if (options.bias) {
    add(".bias", {options.out_channels}, ParameterKind::bias,
        options.initial_bias.value_or(InitialValues{uniform_fan_in}));
  }
  // Each weight is used once per output pixel of its channel.
  result.multiply_adds = weight.elements() * result.output[1] * result.output[2];
  return result;
}

OnnxNodes Conv2d::onnx(const Shape& /*output*/) const {
  OnnxNode result = windows_of("Conv", options);
  result.attributes.emplace_back("group", options.groups);
  return {result};
}

OpDefinition MaxPool::define(const OpInputs& in) const {
  const std::string layer = "max_pool of " + in.names[0];
  const Shape& image = in.image(layer);
  require_pooling(layer, options);
  return {.output = windows_output(layer, image[0], image, options),
          .function = function_of(options)};
}

OnnxNodes MaxPool::onnx(const Shape& /*output*/) const {
  return {windows_of("MaxPool", options)};
}

OpDefinition AvgPool::define(const OpInputs& in) const {
  const std::string layer = "avg_pool of " + in.names[0];
  const Shape& image = in.image(layer);
  require_pooling(layer, options);
  if (!options.partial_windows) {
    return {.output = windows_output(layer, image[0], image, options),
            .function = function_of(options)};
  }
  // Each window begins within the image or its padding.
  const auto output = [this](std::int64_t extent) {
    const std::int64_t rest =
        std::max<std::int64_t>(extent + 2 * options.padding - options.kernel, 0);
    const std::int64_t last = (rest + options.stride - 1) / options.stride;
    return last * options.stride < extent + options.padding ? last + 1 : last;
  };
  return {.output = {image[0], output(image[1]), output(image[2])},
          .function = function_of(options) + " partial"};
}

OnnxNodes AvgPool::onnx(const Shape& /*output*/) const {
  OnnxNode result = windows_of("AveragePool", options);
  const bool partial = options.partial_windows;
  result.attributes.emplace_back("count_include_pad", std::int64_t{partial ? 0 : 1});
  if (partial) result.attributes.emplace_back("ceil_mode", std::int64_t{1});
  return {result};
}

OpDefinition GlobalAvgPool::define(const OpInputs& in) const {
  return {.output = {in.image("global_avg_pool of " + in.names[0])[0], 1, 1}};
}

OnnxNodes GlobalAvgPool::onnx(const Shape& /*output*/) const {
  return {{.type = "GlobalAveragePool"}};
}

}  // namespace lockstep
