#include "../linear_of_pixels.hpp"

#include "../linear_step.hpp"
#include "../row_parts.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace lockstep::cpu {
namespace {

/// sums[c] = the sum of values[row, c]. `partials`: (parts, columns).
template <typename T>
void sum_rows(std::ptrdiff_t rows, std::ptrdiff_t columns, const T* values, float* partials,
              float* sums) {
  for_row_parts(rows, rows * columns,
                [=](std::ptrdiff_t part, std::ptrdiff_t begin, std::ptrdiff_t end)
                    LOCKSTEP_INLINED {
                      float* const own = partials + part * columns;
                      std::fill_n(own, columns, 0.0F);
                      for (std::ptrdiff_t row = begin; row < end; ++row) {
                        const T* const from = values + row * columns;
#pragma omp simd
                        for (std::ptrdiff_t c = 0; c < columns; ++c) own[c] += float{from[c]};
                      }
                    });
  add_parts(partials, parts_of(rows), columns, columns, sums);
}

/// By products of matrices: with X the pixels (rows, C), W the weight (F, C) as it is stored, and
/// dY the gradient of Y (rows, F), Y = X * W^T + bias, dX = dY * W and dW = dY^T * X. oneDNN 2.6's
/// matrix product takes 0.5 to 0.75 times as long as its inner product (fp32, 3152 rows, 768 to
/// 3072 features, AVX-512).
class LinearOfPixels final : public Lowering {
 public:
  LinearOfPixels(const Linear& op, const LoweringContext& context)
      : op_(op),
        parameters_(context.node().parameters),
        features_(context.node().output[0]),
        channels_(context.node(op.input).output[0]),
        pixels_(context.node().output.elements() / features_) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const std::string what = "matrix product " + name();
    const Tensor source = pixels(builder, builder.value(op.inputs[0]));
    const Tensor bias = builder.parameter(parameters_[1], vector(features_), name());
    const Tensor stored = builder.make_rows(op.node);
    const Tensor target = builder.view(stored, matrix(builder, features_));
    builder.set_value(*op.output, stored);
    if (!builder.training() && builder.activations() == DataType::f32) {
      const Tensor columns =
          builder.parameter(parameters_[0], f32({features_, channels_}, Tag::ba), name());
      return emit_linear(builder, what,
                         {.source = source, .weight = columns, .bias = bias, .target = target});
    }
    emit_product(builder, what, source, transposed(builder, weight(builder)),
                 builder.view(bias, f32({1, features_}, Tag::ab)), target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    if (!gradient_) {
      const Tensor arrives =
          builder.in_rows(builder.value(op.grad_output[0]), "gradient of " + name());
      gradient_ = builder.view(arrives, matrix(builder, features_));
    }
    if (op.gradient.of_parameters) return emit_parameter_gradients(builder, op);
    const Tensor stored = builder.make_rows(op_.input);
    emit_product(builder, "data gradient of matrix product " + name(), *gradient_,
                 spread(builder, weight(builder)), std::nullopt,
                 builder.view(stored, matrix(builder, channels_)));
    builder.set_value(*op.grad_inputs[0], stored);
  }

 private:
  using Size = Dims::value_type;

  [[nodiscard]] const std::string& name() const noexcept { return op_.options.name; }
  [[nodiscard]] Desc matrix(const ProgramBuilder& builder, Size columns) const {
    return {{builder.batch_size() * pixels_, columns}, builder.activations(), Tag::ab};
  }
  [[nodiscard]] Tensor pixels(ProgramBuilder& builder, const Tensor& value) const {
    return builder.view(builder.in_rows(value, "input of " + name()), matrix(builder, channels_));
  }
  [[nodiscard]] Tensor weight(ProgramBuilder& builder) const {
    return builder.parameter(parameters_[0], plain({features_, channels_}, builder.activations()),
                             name());
  }
  /// A row-major matrix, transposed, of the same bytes.
  [[nodiscard]] static Tensor transposed(ProgramBuilder& builder, const Tensor& tensor) {
    const Dims dims = dims_of(tensor.desc());
    return builder.view(tensor, Desc({dims[1], dims[0]}, type_of(tensor.desc()), Tag::ba));
  }
  /// The same matrix with rows that are not a multiple of a page apart: otherwise they share sets
  /// of a cache, and a product by the matrix takes twice as long.
  [[nodiscard]] Tensor spread(ProgramBuilder& builder, const Tensor& tensor) const {
    constexpr Size page = 4096;
    constexpr Size line = 64;
    const Dims dims = dims_of(tensor.desc());
    const DataType type = type_of(tensor.desc());
    const auto size = static_cast<Size>(dnnl::memory::data_type_size(type));
    if (dims[1] * size % page != 0) return tensor;
    return builder.in_format(tensor, Desc(dims, type, Dims{dims[1] + line / size, 1}), name());
  }
  [[nodiscard]] static dnnl::matmul::primitive_desc product(ProgramBuilder& builder,
                                                            const std::string& what,
                                                            const Desc& left, const Desc& right,
                                                            const std::optional<Desc>& bias,
                                                            const Desc& target) {
    const auto make = [&](const auto&... operands) {
      return primitive_desc<dnnl::matmul>(builder.engine(), ProgramBuilder::attributes(),
                                          operands...);
    };
    return checked(
        what, [&] { return bias ? make(left, right, *bias, target) : make(left, right, target); });
  }
  static void emit_product(ProgramBuilder& builder, const std::string& what, const Tensor& left,
                           const Tensor& right, const std::optional<Tensor>& bias,
                           const Tensor& target) {
    const auto bias_desc = bias ? std::optional(bias->desc()) : std::nullopt;
    const auto pd = product(builder, what, left.desc(), right.desc(), bias_desc, target.desc());
    ProgramBuilder::Arguments arguments{
        {DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, target}};
    if (bias) arguments.emplace_back(DNNL_ARG_BIAS, *bias);
    builder.emit(what, dnnl::matmul(pd), pd.scratchpad_desc(), arguments);
  }

  void emit_parameter_gradients(ProgramBuilder& builder, const StepOp& op) const {
    const std::string what = "weight gradient of matrix product " + name();
    const Tensor source = spread(builder, pixels(builder, builder.value(op.inputs[0])));
    const Tensor left = transposed(builder, *gradient_);
    const Desc target = plain({features_, channels_});
    const auto pd = product(builder, what, left.desc(), source.desc(), std::nullopt, target);
    builder.emit_parameter_gradients(
        what, dnnl::matmul(pd), pd.scratchpad_desc(),
        {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, source}},
        {{.argument = DNNL_ARG_DST, .parameter = parameters_[0], .desc = target}});
    const std::ptrdiff_t rows = builder.batch_size() * pixels_;
    builder.with_type([&]<typename T>(const T&) {
      builder.emit_parameter_gradients(
          "bias gradient of matrix product " + name(),
          {*gradient_, builder.make(vector(parts_of(rows) * features_))},
          {{.argument = 0, .parameter = parameters_[1], .desc = vector(features_)}},
          [rows, columns = features_](const LoopStep::Addresses& at) {
            sum_rows(rows, columns, static_cast<const T*>(at[0]), static_cast<float*>(at[1]),
                     static_cast<float*>(at[2]));
          });
    });
  }

  Linear op_;
  std::vector<ParameterId> parameters_;
  Size features_;
  Size channels_;
  Size pixels_;                     ///< of a sample
  std::optional<Tensor> gradient_;  ///< of the output, as both parts of backward read it
};

}  // namespace

std::unique_ptr<Lowering> lower_linear_of_pixels(const Linear& op, const LoweringContext& context) {
  return std::make_unique<LinearOfPixels>(op, context);
}

}  // namespace lockstep::cpu
