#include "lockstep/optim/update_rules.hpp"
#include "optimizers.hpp"
#include "segments.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lockstep {
namespace {

class Lars final : public Optimizer {
 public:
  Lars(const Config& config, const ArenaLayout& layout, SumOverRanks sum_norms)
      : sum_norms_(std::move(sum_norms)),
        segments_(make_segments(layout, config.weight_decay, config.decay_norm_and_bias)),
        velocity_(layout.size()),
        momentum_(static_cast<float>(config.momentum)),
        trust_(config.trust_coefficient) {
    norms_.resize(2 * segments_.size());
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "lars"; }
  [[nodiscard]] std::span<const std::string> slot_names() const noexcept override { return names_; }
  [[nodiscard]] std::span<float> slot(std::size_t) noexcept override { return velocity_.span(); }
  [[nodiscard]] bool needs_all_gradients() const noexcept override { return true; }

  void measure(std::span<const ParameterRange> ranges, std::span<const float> gradients) override {
    std::ranges::fill(norms_, 0.0);
    for (const ParameterRange& range : ranges) {
      take_norms(segments_in(segments_, range.begin, range.end), range.parameters, gradients);
    }
    sum_norms_(norms_);
  }

  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    const auto segments = segments_in(segments_, begin, end);
    if (!sum_norms_) take_norms(segments, parameters, gradients);
    for (const Segment& segment : segments) {
      float* const w = parameters.data();
      const float* const g = gradients.data();
      float* const v = velocity_.data();
      const double* const norms = norms_of(segment);
      const double local =
          segment.adapts
              ? trust_ratio(trust_, std::sqrt(norms[0]),
                            static_cast<double>(options.gradient_scale) * std::sqrt(norms[1]),
                            static_cast<double>(segment.weight_decay))
              : 1.0;
      const LarsRule rule{.lr = static_cast<float>(options.lr * local),
                          .weight_decay = segment.weight_decay,
                          .momentum = momentum_,
                          .gradient_scale = options.gradient_scale};
#pragma omp parallel for simd schedule(static) if (parallel : segment.is_large())
      for (std::size_t i = segment.begin; i < segment.end; ++i) rule(g[i], w[i], v[i]);
    }
  }

 private:
  [[nodiscard]] double* norms_of(const Segment& segment) noexcept {
    return norms_.data() + 2 * (&segment - segments_.data());
  }
  void take_norms(std::span<const Segment> segments, std::span<const float> parameters,
                  std::span<const float> gradients) {
    for (const Segment& segment : segments) {
      if (!segment.adapts || segment.begin == segment.end) continue;
      const std::size_t size = segment.end - segment.begin;
      double* const norms = norms_of(segment);
      norms[0] = lockstep::squared_norm(parameters.subspan(segment.begin, size));
      norms[1] = lockstep::squared_norm(gradients.subspan(segment.begin, size));
    }
  }

  SumOverRanks sum_norms_;
  std::vector<double> norms_;  ///< by segment: squares of its weight norm and gradient norm
  std::vector<Segment> segments_;
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
