#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/optim/update_rules.hpp"
#include "optimizers.hpp"
#include "segments.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

/// An optimizer of a rule that keeps one value.
template <typename Rule>
class Momentum final : public Optimizer {
 public:
  Momentum(const Config& config, const ArenaLayout& layout)
      : segments_(make_segments(layout, config.weight_decay, config.decay_norm_and_bias)),
        values_(layout.size()),
        name_(traits_of(config.optimizer).name),
        rule_(Rule::of(momentum_options(config))) {}

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] std::span<const std::string> slot_names() const noexcept override { return names_; }
  [[nodiscard]] std::span<float> slot(std::size_t) noexcept override { return values_.span(); }
  [[nodiscard]] bool needs_all_gradients() const noexcept override { return false; }

  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    for (const Segment& segment : segments_in(segments_, begin, end)) {
      if (segment.is_frozen()) continue;
      float* const w = parameters.data();
      const float* const g = gradients.data();
      float* const v = values_.data();
      Rule rule = rule_;
      rule.lr = static_cast<float>(options.lr * segment.lr_scale);
      rule.weight_decay = segment.weight_decay;
      rule.gradient_scale = options.gradient_scale;
#pragma omp parallel for simd schedule(static) firstprivate(rule) if (parallel : segment.is_large())
      for (std::size_t i = segment.begin; i < segment.end; ++i) rule(g[i], w[i], v[i]);
    }
  }

 private:
  std::vector<Segment> segments_;
  AlignedBuffer<float> values_;
  std::array<std::string, 1> names_{Rule::slot_name};
  std::string_view name_;
  Rule rule_;
};

}  // namespace

MomentumOptions momentum_options(const Config& config) {
  return {.momentum = static_cast<float>(config.momentum),
          .nesterov = config.nesterov,
          .beta1 = config.beta1,
          .beta2 = config.beta2};
}

std::unique_ptr<Optimizer> make_momentum(const Config& config, const ArenaLayout& layout) {
  switch (config.optimizer) {
    case OptimizerKind::sgd:
      return std::make_unique<Momentum<SgdRule>>(config, layout);
    case OptimizerKind::lion:
      return std::make_unique<Momentum<LionRule>>(config, layout);
    default:
      fail(ExitStatus::internal, "optimizer {} is unknown", traits_of(config.optimizer).name);
  }
}

}  // namespace lockstep
