#include "convolution.hpp"

#include "program_builder.hpp"

namespace lockstep::cpu {
namespace {

constexpr dnnl::algorithm direct_algorithm = dnnl::algorithm::convolution_direct;

/// (K, C, R, S), or (groups, K / groups, C / groups, R, S) if there are several groups. The element
/// order is the same.
Shape weight_shape(const ConvolutionOptions& options) {
  const Shape& weight = options.weight;
  const std::int64_t groups = options.source[1] / weight[1];
  if (groups == 1) return weight;
  return {groups, weight[0] / groups, weight[1], weight[2], weight[3]};
}

}  // namespace

Convolution::Convolution(const ConvolutionOptions& options)
    : name_(options.name),
      source_(any_layout(options.source, options.activations)),
      target_(any_layout(options.target, options.activations)),
      weight_(any_layout(weight_shape(options), options.activations)),
      weight_gradient_(any_layout(weight_shape(options), DataType::f32)),
      stride_{options.stride, options.stride},
      padding_{options.padding, options.padding} {
  if (options.bias) bias_ = f32(Dims{options.weight[0]}, Tag::x);
}

Convolution::Forward::primitive_desc Convolution::forward(dnnl::prop_kind kind,
                                                          const dnnl::engine& engine) const {
  return checked("the forward convolution " + name_, [&] {
    return primitive_desc<Forward>(engine, ProgramBuilder::attributes(), kind, direct_algorithm,
                                   source_, weight_, bias_, target_, stride_, padding_, padding_);
  });
}

Convolution::BackwardData::primitive_desc Convolution::backward_data(
    const Forward::primitive_desc& hint, const dnnl::engine& engine) const {
  return checked("the data gradient of convolution " + name_, [&] {
    return backward_primitive_desc<BackwardData>(engine, ProgramBuilder::attributes(), hint,
                                                 direct_algorithm, source_, weight_, target_,
                                                 stride_, padding_, padding_);
  });
}

Convolution::BackwardWeights::primitive_desc Convolution::backward_weights(
    const Forward::primitive_desc& hint, const dnnl::engine& engine) const {
  return checked("the weight gradient of convolution " + name_, [&] {
    return backward_primitive_desc<BackwardWeights>(engine, ProgramBuilder::attributes(), hint,
                                                    direct_algorithm, source_, weight_gradient_,
                                                    bias_, target_, stride_, padding_, padding_);
  });
}

std::optional<WeightProduct> Convolution::weight_product(
    const BackwardWeights::primitive_desc& direct, const dnnl::engine& engine) const {
  if (is_grouped()) return std::nullopt;
  return checked("the weight gradient of convolution " + name_,
                 [&] { return WeightProduct::make(direct, window(), engine); });
}

std::optional<DataProduct> Convolution::data_product(const BackwardData::primitive_desc& direct,
                                                     const dnnl::engine& engine) const {
  if (is_grouped()) return std::nullopt;
  return checked("the data gradient of convolution " + name_,
                 [&] { return DataProduct::make(direct, window(), engine); });
}

Window Convolution::window() const {
  const Dims weight = dims_of(weight_);
  return {.height = weight[2], .width = weight[3], .stride = stride_[0], .padding = padding_[0]};
}

Desc Convolution::weight_format(const dnnl::engine& engine) const {
  const auto hint = forward(dnnl::prop_kind::forward_training, engine);
  const auto gradient = backward_weights(hint, engine);
  const auto product = weight_product(gradient, engine);
  return product ? product->weight : gradient.diff_weights_desc();
}

}  // namespace lockstep::cpu
