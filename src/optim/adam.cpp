#include "chunked_sum.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/optim/update_rules.hpp"
#include "optimizers.hpp"
#include "segments.hpp"
#include "tensor_norms.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {
namespace {

class Adam : public Optimizer {
 public:
  Adam(const Config& config, const ArenaLayout& layout)
      : segments_(make_segments(layout, config.weight_decay, config.decay_norm_and_bias)),
        slots_{AlignedBuffer<float>(layout.size()), AlignedBuffer<float>(layout.size())},
        decoupled_(traits_of(config.optimizer).decouples_decay),
        beta1_(config.beta1),
        beta2_(config.beta2),
        eps_(config.eps) {}

  [[nodiscard]] std::string_view name() const noexcept override {
    return decoupled_ ? "adamw" : "adam";
  }
  [[nodiscard]] std::span<const std::string> slot_names() const noexcept override { return names_; }
  [[nodiscard]] std::span<float> slot(std::size_t index) noexcept override {
    return slots_[index].span();
  }
  [[nodiscard]] bool needs_all_gradients() const noexcept override { return false; }

  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    AdamRule rule = rule_of(options);
    for (const Segment& segment : segments_in(segments_, begin, end)) {
      if (segment.is_frozen()) continue;
      float* const w = parameters.data();
      const float* const g = gradients.data();
      float* const m = slots_[0].data();
      float* const v = slots_[1].data();
      set_tensor(rule, options.lr * (ratio(segment) * segment.lr_scale), segment.weight_decay,
                 decoupled_);
#pragma omp parallel for simd schedule(static) firstprivate(rule) if (parallel : segment.is_large())
      for (std::size_t i = segment.begin; i < segment.end; ++i) rule(g[i], w[i], m[i], v[i]);
    }
  }

 protected:
  /// Factor on the learning rate.
  [[nodiscard]] virtual double ratio(const Segment& /*segment*/) const {
    return 1;
  }
  [[nodiscard]] const std::vector<Segment>& segments() const noexcept {
    return segments_;
  }
  [[nodiscard]] AdamRule rule_of(const UpdateOptions& options) const {
    return adam_rule({.beta1 = beta1_,
                      .beta2 = beta2_,
                      .eps = eps_,
                      .correction1 = 1.0 - std::pow(beta1_, static_cast<double>(options.step)),
                      .correction2 = 1.0 - std::pow(beta2_, static_cast<double>(options.step))},
                     options.gradient_scale);
  }

 private:
  std::vector<Segment> segments_;
  std::array<AlignedBuffer<float>, 2> slots_;
  std::array<std::string, 2> names_{"exp_avg", "exp_avg_sq"};
  bool decoupled_;
  double beta1_;
  double beta2_;
  double eps_;
};

/// Layer-wise rates for weights: u = m_hat / (sqrt(v_hat) + eps) + decay * w; w -= lr * |w| / |u| *
/// u, and lr * u if a norm is zero, as for norm and bias parameters. Source: Y. You et al., "Large
/// batch optimization for deep learning: training BERT in 76 minutes", 2019, algorithm 2.
class Lamb final : public Adam {
 public:
  Lamb(const Config& config, const ArenaLayout& layout, const SumOverRanks& sum_norms)
      : Adam(config, layout), norms_(layout, segments(), sum_norms) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "lamb"; }
  [[nodiscard]] bool needs_all_gradients() const noexcept override { return true; }

  void measure(std::span<const ParameterRange> ranges, std::span<const float> gradients,
               const UpdateOptions& options) override {
    norms_.take_over_shards(ranges, StepSquares{*this, gradients, options});
  }

  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    if (!norms_.is_sharded()) {
      norms_.take({begin, end, parameters}, StepSquares{*this, gradients, options});
    }
    Adam::update(begin, end, parameters, gradients, options);
  }

 private:
  [[nodiscard]] double ratio(const Segment& segment) const override {
    if (!segment.adapts) return 1;
    return trust_ratio(1, norms_.of_weights(segment), norms_.of_moves(segment), 0);
  }
  /// Takes the squares of a segment's steps.
  struct StepSquares {
    Lamb& optimizer;
    std::span<const float> gradients;
    const UpdateOptions& options;
    double operator()(const Segment& segment, std::span<const float> parameters) const {
      AdamRule rule = optimizer.rule_of(options);
      set_unit_step(rule, segment.weight_decay);
      return chunked_sum(segment.end - segment.begin, [&](std::size_t offset, std::size_t count) {
        const std::size_t begin = segment.begin + offset;
        std::array<float, chunk_size> steps;
        std::copy_n(parameters.data() + begin, count, steps.begin());
        const float* const g = gradients.data() + begin;
        const float* const first = optimizer.slot(0).data() + begin;
        const float* const second = optimizer.slot(1).data() + begin;
#pragma omp simd
        for (std::size_t i = 0; i < count; ++i) {
          float m = first[i];
          float v = second[i];
          rule(g[i], steps[i], m, v);
        }
        return sum_of_squares(steps.data(), count);
      });
    }
  };

  TensorNorms norms_;  ///< what moves a tensor is its step
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(const Config& config, const ArenaLayout& layout,
                                     const SumOverRanks& sum_norms) {
  if (config.optimizer == OptimizerKind::lamb) {
    return std::make_unique<Lamb>(config, layout, sum_norms);
  }
  return std::make_unique<Adam>(config, layout);
}

}  // namespace lockstep
