#include "lockstep/optim/update_rules.hpp"
#include "optimizers.hpp"
#include "segments.hpp"

#include <array>
#include <cmath>

namespace lockstep {
namespace {

class Lars final : public Optimizer {
 public:
  Lars(const Config& config, const ArenaLayout& layout)
      : segments_(make_segments(layout, config.weight_decay, config.decay_norm_and_bias)),
        velocity_(layout.size()),
        momentum_(static_cast<float>(config.momentum)),
        trust_(config.trust_coefficient) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "lars"; }
  [[nodiscard]] std::span<const std::string> slot_names() const noexcept override { return names_; }
  [[nodiscard]] std::span<float> slot(std::size_t) noexcept override { return velocity_.span(); }
  [[nodiscard]] bool needs_all_gradients() const noexcept override { return true; }

  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    for (const Segment& segment : segments_in(segments_, begin, end)) {
      float* const w = parameters.data();
      const float* const g = gradients.data();
      float* const v = velocity_.data();
      const double local = local_rate(segment, parameters, gradients, options.gradient_scale);
      const LarsRule rule{.lr = static_cast<float>(options.lr * local),
                          .weight_decay = segment.weight_decay,
                          .momentum = momentum_,
                          .gradient_scale = options.gradient_scale};
#pragma omp parallel for simd schedule(static) if (parallel : segment.is_large())
      for (std::size_t i = segment.begin; i < segment.end; ++i) rule(g[i], w[i], v[i]);
    }
  }

 private:
  [[nodiscard]] double local_rate(const Segment& segment, std::span<const float> parameters,
                                  std::span<const float> gradients, float scale) const {
    if (!segment.adapts) return 1.0;
    const std::size_t size = segment.end - segment.begin;
    const double weight =
        std::sqrt(lockstep::squared_norm(parameters.subspan(segment.begin, size)));
    const double gradient =
        static_cast<double>(scale) *
        std::sqrt(lockstep::squared_norm(gradients.subspan(segment.begin, size)));
    return trust_ratio(trust_, weight, gradient, static_cast<double>(segment.weight_decay));
  }

  std::vector<Segment> segments_;
  AlignedBuffer<float> velocity_;
  std::array<std::string, 1> names_{"momentum_buffer"};
  float momentum_;
  double trust_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const Config& config, const ArenaLayout& layout) {
  return std::make_unique<Lars>(config, layout);
}

}  // namespace lockstep
