#include "../../vector_loop.hpp"
#include "../lowering.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::cpu {
namespace {

/// Values are (samples, tokens, channels); pixels (samples, tokens - 1, channels).
struct TokenExtent {
  std::ptrdiff_t samples;
  std::ptrdiff_t tokens;
  std::ptrdiff_t channels;
  [[nodiscard]] std::ptrdiff_t size() const { return samples * tokens * channels; }
};

template <typename T>
void embed(const TokenExtent& extent, const T* pixels, const float* class_token,
           const float* positions, T* target) {
  const std::ptrdiff_t channels = extent.channels;
  vector_parts(extent.samples * extent.tokens, extent.size(),
               [&](std::ptrdiff_t begin, std::ptrdiff_t end, int) LOCKSTEP_INLINED {
                 for (std::ptrdiff_t row = begin; row < end; ++row) {
                   const std::ptrdiff_t token = row % extent.tokens;
                   const float* const position = positions + token * channels;
                   T* const to = target + row * channels;
                   if (token == 0) {
                     for (std::ptrdiff_t c = 0; c < channels; ++c) {
                       to[c] = T(class_token[c] + position[c]);
                     }
                     continue;
                   }
                   const T* const from = pixels + (row - row / extent.tokens - 1) * channels;
#pragma omp simd
                   for (std::ptrdiff_t c = 0; c < channels; ++c) {
                     to[c] = T(float{from[c]} + position[c]);
                   }
                 }
               });
}

/// Sums over samples, in their order.
template <typename T>
void sum_samples(const TokenExtent& extent, const T* gradient, float* class_token,
                 float* positions) {
  const std::ptrdiff_t row = extent.tokens * extent.channels;
  vector_loop(row, [&](std::ptrdiff_t begin, std::ptrdiff_t end) LOCKSTEP_INLINED {
    std::fill(positions + begin, positions + end, 0.0F);
    for (std::ptrdiff_t sample = 0; sample < extent.samples; ++sample) {
      const T* const from = gradient + sample * row;
#pragma omp simd
      for (std::ptrdiff_t i = begin; i < end; ++i) positions[i] += float{from[i]};
    }
  });
  std::copy_n(positions, extent.channels, class_token);
}

template <typename T>
void copy_pixels(const TokenExtent& extent, const T* gradient, T* target) {
  const std::ptrdiff_t pixels = (extent.tokens - 1) * extent.channels;
  vector_parts(extent.samples, extent.size(),
               [&](std::ptrdiff_t begin, std::ptrdiff_t end, int) LOCKSTEP_INLINED {
                 for (std::ptrdiff_t sample = begin; sample < end; ++sample) {
                   std::copy_n(gradient + sample * (pixels + extent.channels) + extent.channels,
                               pixels, target + sample * pixels);
                 }
               });
}

TokenExtent extent_of(const ProgramBuilder& builder, ValueId tokens) {
  const Shape shape = builder.batch_shape(tokens);
  return {.samples = shape[0], .tokens = shape[2] * shape[3], .channels = shape[1]};
}

class TokensLowering final : public Lowering {
 public:
  TokensLowering(const Tokens& op, const LoweringContext& context)
      : op_(op), parameters_(context.node().parameters) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const TokenExtent extent = extent_of(builder, op.node);
    const Tensor target = builder.make(builder.rows_of(op.node, builder.activations()));
    const std::vector<Tensor> tensors{
        builder.in_rows(builder.value(op.inputs[0]), "input of " + name()),
        parameter(builder, 0, {1, 1, extent.channels}),
        parameter(builder, 1, {1, extent.tokens, extent.channels}), target};
    builder.with_type([&]<typename T>(const T&) {
      builder.emit_loop(name(), tensors, [extent](const LoopStep::Addresses& at) {
        embed(extent, static_cast<const T*>(at[0]), static_cast<const float*>(at[1]),
              static_cast<const float*>(at[2]), static_cast<T*>(at[3]));
      });
    });
    builder.set_value(*op.output, target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const TokenExtent extent = extent_of(builder, op.node);
    const std::string what = "gradient of " + name();
    const Tensor gradient =
        builder.grad_output(op, builder.rows_of(op.node, builder.activations()), what).first;
    builder.with_type([&]<typename T>(const T&) {
      builder.emit_parameter_gradients(
          "parameter " + what, {gradient},
          {{.argument = 0, .parameter = parameters_[0], .desc = plain({1, 1, extent.channels})},
           {.argument = 0,
            .parameter = parameters_[1],
            .desc = plain({1, extent.tokens, extent.channels})}},
          [extent](const LoopStep::Addresses& at) {
            sum_samples(extent, static_cast<const T*>(at[0]), static_cast<float*>(at[1]),
                        static_cast<float*>(at[2]));
          });
      if (!op.grad_inputs[0]) return;
      const Tensor target = builder.make(builder.rows_of(op_.input, builder.activations()));
      builder.emit_loop(what, {gradient, target}, [extent](const LoopStep::Addresses& at) {
        copy_pixels(extent, static_cast<const T*>(at[0]), static_cast<T*>(at[1]));
      });
      builder.set_value(*op.grad_inputs[0], target);
    });
  }

 private:
  [[nodiscard]] static std::string name() { return "tokens"; }
  [[nodiscard]] Tensor parameter(ProgramBuilder& builder, std::size_t index,
                                 const Shape& shape) const {
    return builder.parameter(parameters_[index], plain(shape), name());
  }

  Tokens op_;
  std::vector<ParameterId> parameters_;
};

class FirstTokenLowering final : public Lowering {
 public:
  explicit FirstTokenLowering(const FirstToken& op) : input_(op.input) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const TokenExtent extent = extent_of(builder, input_);
    const Tensor source = builder.in_rows(builder.value(op.inputs[0]), "input of first token");
    const Tensor target = builder.make(builder.rows_of(op.node, builder.activations()));
    builder.with_type([&]<typename T>(const T&) {
      builder.emit_loop("first token", {source, target}, [extent](const LoopStep::Addresses& at) {
        for (std::ptrdiff_t sample = 0; sample < extent.samples; ++sample) {
          std::copy_n(static_cast<const T*>(at[0]) + sample * extent.tokens * extent.channels,
                      extent.channels, static_cast<T*>(at[1]) + sample * extent.channels);
        }
      });
    });
    builder.set_value(*op.output, target);
  }

  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const TokenExtent extent = extent_of(builder, input_);
    const std::string what = "gradient of first token";
    const Tensor gradient =
        builder.grad_output(op, builder.rows_of(op.node, builder.activations()), what).first;
    const Tensor target = builder.make(builder.rows_of(input_, builder.activations()));
    builder.with_type([&]<typename T>(const T&) {
      builder.emit_loop(what, {gradient, target}, [extent](const LoopStep::Addresses& at) {
        auto* to = static_cast<T*>(at[1]);
        const std::ptrdiff_t rest = (extent.tokens - 1) * extent.channels;
        for (std::ptrdiff_t sample = 0; sample < extent.samples; ++sample) {
          to = std::copy_n(static_cast<const T*>(at[0]) + sample * extent.channels, extent.channels,
                           to);
          to = std::fill_n(to, rest, T());
        }
      });
    });
    builder.set_value(*op.grad_inputs[0], target);
  }

 private:
  ValueId input_;
};

}  // namespace

static std::unique_ptr<Lowering> make_lowering(const Tokens& op, const LoweringContext& context) {
  return std::make_unique<TokensLowering>(op, context);
}
static std::unique_ptr<Lowering> make_lowering(const FirstToken& op,
                                               const LoweringContext& /*context*/) {
  return std::make_unique<FirstTokenLowering>(op);
}

}  // namespace lockstep::cpu

template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::Tokens>;
template struct lockstep::LowerOp<lockstep::cpu::ProgramBuilder, lockstep::FirstToken>;
