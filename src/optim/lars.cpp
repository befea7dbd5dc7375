#include "lockstep/config/config.hpp"
#include "lockstep/optim/update_rules.hpp"
#include "optimizers.hpp"
#include "tensor_norms.hpp"

#include <array>
#include <utility>

namespace lockstep {
namespace {

class Lars final : public Optimizer {
 public:
  Lars(const Config& config, const ArenaLayout& layout, SumOverRanks sum_norms)
      : segments_(make_segments(layout, config.weight_decay, config.decay_norm_and_bias)),
        norms_(layout, segments_, std::move(sum_norms)),
        velocity_(layout.size()),
        momentum_(static_cast<float>(config.momentum)),
        trust_(config.trust_coefficient) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "lars"; }
  [[nodiscard]] std::span<const std::string> slot_names() const noexcept override { return names_; }
  [[nodiscard]] std::span<float> slot(std::size_t) noexcept override { return velocity_.span(); }
  [[nodiscard]] bool needs_all_gradients() const noexcept override { return true; }

  void measure(std::span<const ParameterRange> ranges, std::span<const float> gradients,
               const UpdateOptions& /*options*/) override {
    norms_.take_over_shards(ranges, GradientSquares{gradients});
  }

  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    if (!norms_.is_sharded()) norms_.take({begin, end, parameters}, GradientSquares{gradients});
    for (const Segment& segment : segments_in(segments_, begin, end)) {
      if (segment.is_frozen()) continue;
      float* const w = parameters.data();
      const float* const g = gradients.data();
      float* const v = velocity_.data();
      const double local =
          segment.adapts
              ? trust_ratio(trust_, norms_.of_weights(segment),
                            static_cast<double>(options.gradient_scale) * norms_.of_moves(segment),
                            static_cast<double>(segment.weight_decay))
              : 1.0;
      const LarsRule rule{.lr = static_cast<float>(options.lr * (local * segment.lr_scale)),
                          .weight_decay = segment.weight_decay,
                          .momentum = momentum_,
                          .gradient_scale = options.gradient_scale};
#pragma omp parallel for simd schedule(static) if (parallel : segment.is_large())
      for (std::size_t i = segment.begin; i < segment.end; ++i) rule(g[i], w[i], v[i]);
    }
  }

 private:
  /// Squares of the gradients of a segment.
  struct GradientSquares {
    std::span<const float> gradients;
    double operator()(const Segment& segment, std::span<const float> /*parameters*/) const {
      return lockstep::squared_norm(gradients.subspan(segment.begin, segment.end - segment.begin));
    }
  };

  std::vector<Segment> segments_;
  TensorNorms norms_;  ///< what moves a tensor is its gradient
  AlignedBuffer<float> velocity_;
  std::array<std::string, 1> names_{"momentum_buffer"};
  float momentum_;
  double trust_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const Config& config, const ArenaLayout& layout,
                                     const SumOverRanks& sum_norms) {
  return std::make_unique<Lars>(config, layout, sum_norms);
}

}  // namespace lockstep
