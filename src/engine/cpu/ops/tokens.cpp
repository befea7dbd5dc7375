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

TokenExtent extent_of(const ProgramBuilder& builder, ValueId tokens) {
  const Shape shape = builder.batch_shape(tokens);
  return {
      .samples = shape[0], .tokens = shape.elements() / shape[0] / shape[1], .channels = shape[1]};
}

/// Copies the tokens from `first` on of one value, or its gradient, to those of another; the rest
/// of these becomes zero.
struct TokenCopy {
  ValueId from;
  ValueId to;
  std::ptrdiff_t first = 0;
};
template <typename T>
void copy_tokens(const TokenExtent& extent, std::ptrdiff_t from_tokens, std::ptrdiff_t first,
                 const T* from, T* to) {
  const std::ptrdiff_t size = extent.tokens * extent.channels;
  const std::ptrdiff_t copied = std::min(extent.tokens, from_tokens - first) * extent.channels;
  vector_parts(extent.samples, extent.size(),
               [&](std::ptrdiff_t begin, std::ptrdiff_t end, int) LOCKSTEP_INLINED {
                 for (std::ptrdiff_t sample = begin; sample < end; ++sample) {
                   const T* const source = from + (sample * from_tokens + first) * extent.channels;
                   std::fill(std::copy_n(source, copied, to + sample * size),
                             to + (sample + 1) * size, T());
                 }
               });
}
Tensor emit_copy(ProgramBuilder& builder, const std::string& name, const TokenCopy& copy,
                 const Tensor& given) {
  const Tensor from = builder.in_rows(given, name);
  const Tensor to = builder.make_rows(copy.to);
  builder.with_type([&]<typename T>(const T&) {
    builder.emit_loop(
        name, {from, to},
        [extent = extent_of(builder, copy.to), first = copy.first,
         from_tokens = extent_of(builder, copy.from).tokens](const LoopStep::Addresses& at) {
          copy_tokens(extent, from_tokens, first, static_cast<const T*>(at[0]),
                      static_cast<T*>(at[1]));
        });
  });
  return to;
}

class TokensLowering final : public Lowering {
 public:
  TokensLowering(const Tokens& op, const LoweringContext& context)
      : op_(op), parameters_(context.node().parameters) {}

  void forward(ProgramBuilder& builder, const StepOp& op) override {
    const TokenExtent extent = extent_of(builder, op.node);
    const Tensor target = builder.make_rows(op.node);
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
    const Tensor gradient = builder.in_rows(builder.value(op.grad_output[0]), what);
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
    });
    if (!op.grad_inputs[0]) return;
    const TokenCopy pixels{.from = op.node, .to = op_.input, .first = 1};
    builder.set_value(*op.grad_inputs[0], emit_copy(builder, what, pixels, gradient));
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
    const TokenCopy first{.from = input_, .to = op.node};
    builder.set_value(*op.output,
                      emit_copy(builder, "first token", first, builder.value(op.inputs[0])));
  }
  void gradient(ProgramBuilder& builder, const StepOp& op) override {
    const TokenCopy first{.from = op.node, .to = input_};
    builder.set_value(*op.grad_inputs[0], emit_copy(builder, "gradient of first token", first,
                                                    builder.value(op.grad_output[0])));
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
