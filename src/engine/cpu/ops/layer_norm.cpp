#include "../lowering.hpp"
#include "../row_parts.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::cpu {
namespace {

/// A tensor as rows of adjacent channels: one a pixel, or one a flat value.
struct RowExtent {
  std::ptrdiff_t rows;
  std::ptrdiff_t channels;
};

/// Statistics of rows, (rows) each; null: not kept.
struct RowStatistics {
  float* means;
  float* inverse_deviations;
};

template <typename T>
struct Forward {
  RowExtent extent;
  float eps;
  const T* source;
  const float* scale;
  const float* shift;
  T* target;
  RowStatistics statistics;

  LOCKSTEP_INLINED void run_row(std::ptrdiff_t row) const {
    const std::ptrdiff_t channels = extent.channels;
    const T* const from = source + row * channels;
    T* const to = target + row * channels;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::ptrdiff_t c = 0; c < channels; ++c) sum += float{from[c]};
    const float mean = sum / static_cast<float>(channels);
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::ptrdiff_t c = 0; c < channels; ++c) {
      const float distance = float{from[c]} - mean;
      squares += distance * distance;
    }
    const float factor = 1.0F / std::sqrt(squares / static_cast<float>(channels) + eps);
#pragma omp simd
    for (std::ptrdiff_t c = 0; c < channels; ++c) {
      to[c] = T((float{from[c]} - mean) * factor * scale[c] + shift[c]);
    }
    if (statistics.means == nullptr) return;
    statistics.means[row] = mean;
    statistics.inverse_deviations[row] = factor;
  }
  void run() const {
    vector_parts(extent.rows, extent.rows * extent.channels,
                 [this](std::ptrdiff_t begin, std::ptrdiff_t end, int) LOCKSTEP_INLINED {
                   for (std::ptrdiff_t row = begin; row < end; ++row) run_row(row);
                 });
  }
};

/// With g = scale * gradient and n the normalized source: target = (g - mean(g) - n * mean(g * n))
/// / deviation. The gradient of scale is the sum of gradient * n over rows, that of shift the sum
/// of gradient.
template <typename T>
struct Backward {
  RowExtent extent;
  const T* source;
  const T* gradient;
  const float* scale;
  RowStatistics statistics;
  T* target;        ///< may be `source` or `gradient`; null: not computed
  float* partials;  ///< (parts, 2, channels)
  float* scale_gradient;
  float* shift_gradient;

  LOCKSTEP_INLINED void run_row(std::ptrdiff_t row, float* scale_sums, float* shift_sums) const {
    const std::ptrdiff_t channels = extent.channels;
    const T* const x = source + row * channels;
    const T* const dy = gradient + row * channels;
    const float mean = statistics.means[row];
    const float factor = statistics.inverse_deviations[row];
    float sum = 0;
    float product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (std::ptrdiff_t c = 0; c < channels; ++c) {
      const float normalized = (float{x[c]} - mean) * factor;
      const float of_output{dy[c]};
      scale_sums[c] += of_output * normalized;
      shift_sums[c] += of_output;
      sum += of_output * scale[c];
      product += of_output * scale[c] * normalized;
    }
    if (target == nullptr) return;
    T* const dx = target + row * channels;
    sum /= static_cast<float>(channels);
    product /= static_cast<float>(channels);
#pragma omp simd
    for (std::ptrdiff_t c = 0; c < channels; ++c) {
      const float normalized = (float{x[c]} - mean) * factor;
      dx[c] = T((float{dy[c]} * scale[c] - sum - normalized * product) * factor);
    }
  }
  void run() const {
    const std::ptrdiff_t channels = extent.channels;
    for_row_parts(extent.rows, extent.rows * channels,
                  [this](std::ptrdiff_t part, std::ptrdiff_t begin, std::ptrdiff_t end)
                      LOCKSTEP_INLINED {
                        float* const scale_sums = partials + part * 2 * extent.channels;
                        float* const shift_sums = scale_sums + extent.channels;
                        std::fill(scale_sums, shift_sums + extent.channels, 0.0F);
                        for (std::ptrdiff_t row = begin; row < end; ++row) {
                          run_row(row, scale_sums, shift_sums);
                        }
                      });
    const std::ptrdiff_t parts = parts_of(extent.rows);
    add_parts(partials, parts, 2 * channels, channels, scale_gradient);
    add_parts(partials + channels, parts, 2 * channels, channels, shift_gradient);
  }
};

class LayerNormLowering final : public Lowering {
 public:
  LayerNormLowering(const LayerNorm& op, const LoweringContext& context)
      : op_(op), parameters_(context.node().parameters) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const Tensor value = builder.value(op.inputs[0]);
    const Tensor source = in_rows(builder, value);
    const Tensor target =
        builder.overwritable(source, op.inputs[0]) ? source : builder.make(source.desc());
    Tensor saved;
    if (op.saved) {
      saved = builder.make(vector(2 * extent_.rows));
      builder.set_value(*op.saved, saved);
    }
    const std::vector<Tensor> tensors{source, parameter(builder, 0), parameter(builder, 1), target,
                                      saved};
    builder.with_type([&]<typename T>(const T&) {
      const auto loop = [extent = extent_,
                         eps = static_cast<float>(op_.options.eps)](const LoopStep::Addresses& at) {
        Forward<T>{.extent = extent,
                   .eps = eps,
                   .source = static_cast<const T*>(at[0]),
                   .scale = static_cast<const float*>(at[1]),
                   .shift = static_cast<const float*>(at[2]),
                   .target = static_cast<T*>(at[3]),
                   .statistics = statistics(extent, at[4])}
            .run();
      };
      builder.emit_loop("layer norm " + op_.options.name, tensors, loop);
    });
    builder.set_value(*op.output, target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const std::string name = "gradient of layer norm " + op_.options.name;
    const Tensor value = builder.value(op.inputs[0]);
    const Tensor source = in_rows(builder, value);
    const GradOutput grad_output = builder.grad_output(op, source.desc(), name);
    Tensor target;
    if (op.grad_inputs[0]) {
      target = grad_output.target                           ? *grad_output.target
               : builder.overwritable(source, op.inputs[0]) ? source
                                                            : builder.make(source.desc());
      builder.set_value(*op.grad_inputs[0], target);
    }
    const std::vector<Tensor> operands{
        source,
        grad_output.first,
        parameter(builder, 0),
        builder.value(*op.saved),
        target,
        builder.make(vector(2 * parts_of(extent_.rows) * extent_.channels))};
    const Desc channels = vector(extent_.channels);
    builder.with_type([&]<typename T>(const T&) {
      builder.emit_parameter_gradients(
          name, operands,
          {{.argument = 0, .parameter = parameters_[0], .desc = channels},
           {.argument = 0, .parameter = parameters_[1], .desc = channels}},
          [extent = extent_](const LoopStep::Addresses& at) {
            Backward<T>{.extent = extent,
                        .source = static_cast<const T*>(at[0]),
                        .gradient = static_cast<const T*>(at[1]),
                        .scale = static_cast<const float*>(at[2]),
                        .statistics = statistics(extent, at[3]),
                        .target = static_cast<T*>(at[4]),
                        .partials = static_cast<float*>(at[5]),
                        .scale_gradient = static_cast<float*>(at[6]),
                        .shift_gradient = static_cast<float*>(at[7])}
                .run();
          });
    });
  }

 private:
  [[nodiscard]] static RowStatistics statistics(const RowExtent& extent, void* saved) {
    auto* const means = static_cast<float*>(saved);
    return {.means = means, .inverse_deviations = means == nullptr ? nullptr : means + extent.rows};
  }
  /// The value with adjacent channels.
  [[nodiscard]] Tensor in_rows(ProgramBuilder& builder, const Tensor& value) {
    const Dims dims = dims_of(value.desc());
    extent_ = {.rows = dims[0], .channels = dims[1]};
    for (std::size_t axis = 2; axis < dims.size(); ++axis) extent_.rows *= dims[axis];
    return builder.in_rows(value, "input of " + op_.options.name);
  }
  [[nodiscard]] Tensor parameter(ProgramBuilder& builder, std::size_t index) const {
    return builder.parameter(parameters_[index], vector(extent_.channels), op_.options.name);
  }
  LayerNorm op_;
  std::vector<ParameterId> parameters_;
  RowExtent extent_{};
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const LayerNorm& op,
                                               const LoweringContext& context) {
  return std::make_unique<LayerNormLowering>(op, context);
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::LayerNorm>;
