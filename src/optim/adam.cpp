#include "lockstep/optim/update_rules.hpp"
#include "optimizers.hpp"
#include "segments.hpp"

#include <array>
#include <cmath>

namespace lockstep {
namespace {

class Adam final : public Optimizer {
 public:
  Adam(const Config& config, const ArenaLayout& layout)
      : segments_(make_segments(layout, config.weight_decay, config.decay_norm_and_bias)),
        slots_{AlignedBuffer<float>(layout.size()), AlignedBuffer<float>(layout.size())},
        decoupled_(config.optimizer == OptimizerKind::adamw),
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
    const auto step = static_cast<double>(options.step);
    const double correction1 = 1.0 - std::pow(beta1_, step);
    AdamRule rule = adam_rule({.beta1 = beta1_,
                               .beta2 = beta2_,
                               .eps = eps_,
                               .correction1 = correction1,
                               .correction2 = 1.0 - std::pow(beta2_, step)},
                              options.gradient_scale);
    for (const Segment& segment : segments_in(segments_, begin, end)) {
      float* const w = parameters.data();
      const float* const g = gradients.data();
      float* const m = slots_[0].data();
      float* const v = slots_[1].data();
      set_tensor(rule, options.lr, segment.weight_decay, correction1, decoupled_);
#pragma omp parallel for simd schedule(static) firstprivate(rule) if (parallel : segment.is_large())
      for (std::size_t i = segment.begin; i < segment.end; ++i) rule(g[i], w[i], m[i], v[i]);
    }
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

}  // namespace

std::unique_ptr<Optimizer> make_adam(const Config& config, const ArenaLayout& layout,
                                     const SumOverRanks& /*sum_norms*/) {
  return std::make_unique<Adam>(config, layout);
}

}  // namespace lockstep
