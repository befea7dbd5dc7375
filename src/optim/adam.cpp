#include "optimizers.hpp"
#include "segments.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

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
        // An eps that vanishes in fp32 would make the padding 0 / 0.
        eps_(std::max(static_cast<float>(config.eps), std::numeric_limits<float>::min())) {}

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
    const auto step_size = static_cast<float>(options.lr / correction1);
    const auto root2 = static_cast<float>(std::sqrt(1.0 - std::pow(beta2_, step)));
    const auto beta1 = static_cast<float>(beta1_);
    const auto beta2 = static_cast<float>(beta2_);
    const auto rest1 = static_cast<float>(1.0 - beta1_);
    const auto rest2 = static_cast<float>(1.0 - beta2_);
    const float eps = eps_;
    const float scale = options.gradient_scale;
    for (const Segment& segment : segments_in(segments_, begin, end)) {
      float* const w = parameters.data();
      const float* const g = gradients.data();
      float* const m = slots_[0].data();
      float* const v = slots_[1].data();
      const float coupled = decoupled_ ? 0.0F : segment.weight_decay;
      const auto shrink = static_cast<float>(
          decoupled_ ? 1.0 - options.lr * static_cast<double>(segment.weight_decay) : 1.0);
#pragma omp parallel for simd schedule(static) if (parallel : segment.is_large())
      for (std::size_t i = segment.begin; i < segment.end; ++i) {
        const float d = scale * g[i] + coupled * w[i];
        m[i] = beta1 * m[i] + rest1 * d;
        v[i] = beta2 * v[i] + rest2 * d * d;
        w[i] = shrink * w[i] - step_size * m[i] / (std::sqrt(v[i]) / root2 + eps);
      }
    }
  }

 private:
  std::vector<Segment> segments_;
  std::array<AlignedBuffer<float>, 2> slots_;
  std::array<std::string, 2> names_{"exp_avg", "exp_avg_sq"};
  bool decoupled_;
  double beta1_;
  double beta2_;
  float eps_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adam(const Config& config, const ArenaLayout& layout) {
  return std::make_unique<Adam>(config, layout);
}

}  // namespace lockstep
