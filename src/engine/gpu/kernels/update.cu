#include "update_kernels.hpp"

#include "launch.hpp"
#include "lockstep/optim/update_rules.hpp"
#include "tensor_sums.hpp"
#include "vector_io.hpp"

#include <cmath>
#include <limits>

namespace lockstep::gpu {
namespace {

/// One item per 16 bytes of the range, which belong to one tensor.
constexpr int item_size = packed_size<float>;

LOCKSTEP_HOST_DEVICE std::size_t place_of(const UpdateRange& range, std::int64_t item) {
  return range.begin + static_cast<std::size_t>(item) * item_size;
}
LOCKSTEP_HOST_DEVICE TensorUpdate tensor_at(const UpdateRange& range, std::size_t at) {
  return range.tensors[range.tensor_of_block[at / arena_block]];
}
/// Returns whether the update is made.
LOCKSTEP_HOST_DEVICE bool take_decision(const UpdateDecision* decision, float& gradient_scale) {
  if (decision == nullptr) return true;
  gradient_scale = decision->gradient_scale;
  return decision->made != 0;
}
std::int64_t items_of(const UpdateRange& range) {
  return static_cast<std::int64_t>(range.end - range.begin) / item_size;
}
AdamRule rule_of(const UpdateRange& range, const AdamUpdate& options) {
  return adam_rule({.beta1 = options.beta1,
                    .beta2 = options.beta2,
                    .eps = options.eps,
                    .correction1 = options.correction1,
                    .correction2 = options.correction2},
                   range.gradient_scale);
}

template <typename Rule>
struct MomentumUpdate {
  /// Reads the gradients; reads and writes the parameters and the momentum.
  enum : std::size_t { item_bytes = 5 * item_size * sizeof(float) };
  UpdateRange range;
  Rule rule;
  float* momentum_buffer;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::size_t at = place_of(range, item);
    const TensorUpdate tensor = tensor_at(range, at);
    Rule rule_here = rule;
    if (tensor.lr_scale == 0 || !take_decision(range.decision, rule_here.gradient_scale)) return;
    rule_here.lr = static_cast<float>(range.lr * tensor.lr);
    rule_here.weight_decay = tensor.weight_decay;
    const Floats<item_size> g = load<item_size>(range.gradients + at);
    Floats<item_size> w = load<item_size>(range.parameters + at);
    Floats<item_size> v = load<item_size>(momentum_buffer + at);
    for (int i = 0; i < item_size; ++i) rule_here(g[i], w[i], v[i]);
    store<item_size>(range.parameters + at, w);
    store<item_size>(momentum_buffer + at, v);
  }
};

struct MomentsUpdate {
  enum : std::size_t { item_bytes = 7 * item_size * sizeof(float) };
  UpdateRange range;
  AdamRule rule;
  bool decoupled_decay;
  float* exp_avg;
  float* exp_avg_sq;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::size_t at = place_of(range, item);
    const TensorUpdate tensor = tensor_at(range, at);
    AdamRule rule_here = rule;
    if (tensor.lr_scale == 0 || !take_decision(range.decision, rule_here.gradient_scale)) return;
    set_tensor(rule_here, range.lr * tensor.lr, tensor.weight_decay, decoupled_decay);
    const Floats<item_size> g = load<item_size>(range.gradients + at);
    Floats<item_size> w = load<item_size>(range.parameters + at);
    Floats<item_size> m = load<item_size>(exp_avg + at);
    Floats<item_size> v = load<item_size>(exp_avg_sq + at);
    for (int i = 0; i < item_size; ++i) rule_here(g[i], w[i], m[i], v[i]);
    store<item_size>(range.parameters + at, w);
    store<item_size>(exp_avg + at, m);
    store<item_size>(exp_avg_sq + at, v);
  }
};

struct ArenaValues {
  enum : std::size_t { arenas_read = 1 };
  const float* arena;
  LOCKSTEP_HOST_DEVICE Floats<static_cast<int>(arena_block)> operator()(std::int64_t block) const {
    constexpr int size = static_cast<int>(arena_block);
    return load<size>(arena + block * size);
  }
};

/// The negative steps of AdamW at a learning rate of 1.
struct AdamSteps {
  enum : std::size_t { arenas_read = 4 };
  UpdateRange range;
  AdamRule rule;
  const float* exp_avg;
  const float* exp_avg_sq;
  LOCKSTEP_HOST_DEVICE Floats<static_cast<int>(arena_block)> operator()(std::int64_t block) const {
    constexpr int size = static_cast<int>(arena_block);
    const std::size_t at = range.begin + static_cast<std::size_t>(block) * arena_block;
    AdamRule rule_here = rule;
    take_decision(range.decision, rule_here.gradient_scale);
    set_unit_step(rule_here, tensor_at(range, at).weight_decay);
    const Floats<size> g = load<size>(range.gradients + at);
    Floats<size> w = load<size>(range.parameters + at);
    Floats<size> m = load<size>(exp_avg + at);
    Floats<size> v = load<size>(exp_avg_sq + at);
    for (int i = 0; i < size; ++i) rule_here(g[i], w[i], m[i], v[i]);
    return w;
  }
};

struct AverageUpdate {
  enum : std::size_t { item_bytes = 3 * item_size * sizeof(float) };
  UpdateRange range;
  AverageRule rule;
  float* average;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t item) const {
    const std::size_t at = place_of(range, item);
    float ignored = 0;
    if (!take_decision(range.decision, ignored)) return;
    const Floats<item_size> w = load<item_size>(range.parameters + at);
    Floats<item_size> a = load<item_size>(average + at);
    for (int i = 0; i < item_size; ++i) rule(w[i], a[i]);
    store<item_size>(average + at, a);
  }
};

/// One thread block, whose lanes divide the tensors.
struct Decide {
  struct Partial {
    double squares;
    LOCKSTEP_HOST_DEVICE void merge(const Partial& other) { squares += other.squares; }
  };
  UpdateTerms terms;
  UpdateDecision* decision;
  [[nodiscard]] LOCKSTEP_HOST_DEVICE Partial partial(std::int64_t, int, int lane) const {
    Partial result{0};
    if (terms.squares == nullptr) return result;
    for (auto i = static_cast<std::size_t>(lane); i < terms.tensors; i += threads_per_block) {
      result.squares += terms.squares[i];
    }
    return result;
  }
  LOCKSTEP_HOST_DEVICE void finish(std::int64_t, int, const Partial& total) const {
    const double norm = terms.scale * std::sqrt(total.squares);
    const bool finite = norm <= std::numeric_limits<double>::max() && *terms.not_finite == 0;
    double scale = terms.scale;
    if (terms.clip_norm > 0) {
      // As in torch.nn.utils.clip_grad_norm_: 1e-6 avoids a division by zero.
      const double share = terms.clip_norm / (norm + 1e-6);
      if (!(share > 1)) scale *= share;
    }
    const bool complete = static_cast<double>(*terms.samples) == terms.all_samples;
    decision->gradient_norm = norm;
    decision->gradient_scale = static_cast<float>(scale);
    decision->made = complete && (finite || !terms.skips_overflow) ? 1 : 0;
  }
};

/// One item per tensor.
struct SetTrustRatio {
  TrustRatios ratios;
  TensorUpdate* updates;
  LOCKSTEP_HOST_DEVICE void operator()(std::int64_t tensor) const {
    if (ratios.adapts[tensor] == 0) return;
    float scale = ratios.gradient_scale;
    if (!take_decision(ratios.decision, scale)) return;
    TensorUpdate& update = updates[tensor];
    const double weights = std::sqrt(ratios.weight_squares[tensor]);
    const double moves = std::sqrt(ratios.move_squares[tensor]);
    const double ratio = ratios.of_steps ? trust_ratio(ratios.trust_coefficient, weights, moves, 0)
                                         : trust_ratio(ratios.trust_coefficient, weights,
                                                       static_cast<double>(scale) * moves,
                                                       static_cast<double>(update.weight_decay));
    update.lr = ratio * update.lr_scale;
  }
};

}  // namespace

void decide_update(Stream stream, const UpdateTerms& terms, UpdateDecision* decision) {
  launch_blocks(stream, {.count = 1, .columns = 1}, Decide{terms, decision});
}

void set_trust_ratios(Stream stream, const TrustRatios& ratios, TensorUpdate* updates) {
  launch(stream, static_cast<std::int64_t>(ratios.tensors), SetTrustRatio{ratios, updates});
}

template <typename Rule>
void momentum_update(Stream stream, const UpdateRange& range, Rule rule, float* values) {
  rule.gradient_scale = range.gradient_scale;
  launch(stream, items_of(range), MomentumUpdate<Rule>{range, rule, values});
}
template void momentum_update(Stream, const UpdateRange&, SgdRule, float*);
template void momentum_update(Stream, const UpdateRange&, LarsRule, float*);
template void momentum_update(Stream, const UpdateRange&, LionRule, float*);

void adam_update(Stream stream, const UpdateRange& range, const AdamUpdate& options, float* exp_avg,
                 float* exp_avg_sq) {
  launch(
      stream, items_of(range),
      MomentsUpdate{range, rule_of(range, options), options.decoupled_decay, exp_avg, exp_avg_sq});
}

void average_update(Stream stream, const UpdateRange& range, double decay, float* average) {
  launch(stream, items_of(range), AverageUpdate{range, average_rule(decay), average});
}

void adam_step_norms(Stream stream, const UpdateRange& range, const AdamUpdate& options,
                     const float* exp_avg, const float* exp_avg_sq, std::size_t tensors,
                     double* sums, void* workspace) {
  sum_squares(stream, AdamSteps{range, rule_of(range, options), exp_avg, exp_avg_sq},
              (range.end - range.begin) / arena_block,
              range.tensor_of_block + range.begin / arena_block, tensors, sums, workspace);
}

void squared_norms(Stream stream, const float* arena, std::size_t blocks,
                   const std::uint32_t* tensor_of_block, std::size_t tensors, double* sums,
                   void* workspace) {
  sum_squares(stream, ArenaValues{arena}, blocks, tensor_of_block, tensors, sums, workspace);
}

std::size_t squared_norms_workspace(std::size_t blocks, std::size_t tensors) {
  return tensor_sums::Workspace::bytes(blocks, tensors);
}

}  // namespace lockstep::gpu
