#include "lockstep/config/config.hpp"
#include "lockstep/optim/update_rules.hpp"
#include "optimizers.hpp"
#include "segments.hpp"

#include <array>

namespace lockstep {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(const Config& config, const ArenaLayout& layout)
      : segments_(make_segments(layout, config.weight_decay, config.decay_norm_and_bias)),
        velocity_(layout.size()),
        momentum_(static_cast<float>(config.momentum)),
        nesterov_(config.nesterov) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "sgd"; }
  [[nodiscard]] std::span<const std::string> slot_names() const noexcept override { return names_; }
  [[nodiscard]] std::span<float> slot(std::size_t) noexcept override { return velocity_.span(); }
  [[nodiscard]] bool needs_all_gradients() const noexcept override { return false; }

  void update(std::size_t begin, std::size_t end, std::span<float> parameters,
              std::span<const float> gradients, const UpdateOptions& options) override {
    for (const Segment& segment : segments_in(segments_, begin, end)) {
      if (segment.is_frozen()) continue;
      float* const w = parameters.data();
      const float* const g = gradients.data();
      float* const v = velocity_.data();
      const SgdRule rule{.lr = static_cast<float>(options.lr * segment.lr_scale),
                         .weight_decay = segment.weight_decay,
                         .momentum = momentum_,
                         .gradient_scale = options.gradient_scale,
                         .nesterov = nesterov_};
#pragma omp parallel for simd schedule(static) if (parallel : segment.is_large())
      for (std::size_t i = segment.begin; i < segment.end; ++i) rule(g[i], w[i], v[i]);
    }
  }

 private:
  std::vector<Segment> segments_;
  AlignedBuffer<float> velocity_;
  std::array<std::string, 1> names_{"momentum_buffer"};
  float momentum_;
  bool nesterov_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const Config& config, const ArenaLayout& layout) {
  return std::make_unique<Sgd>(config, layout);
}

}  // namespace lockstep
