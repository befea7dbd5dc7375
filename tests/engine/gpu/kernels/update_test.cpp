#include "gpu/kernels/update_kernels.hpp"
#include "kernel_values.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/update_rules.hpp"
#include "lockstep/optim/weight_average.hpp"

#include <algorithm>
#include <string_view>

using namespace lockstep;
using namespace lockstep::gpu;

namespace {

constexpr int steps = 5;

/// Tensors of odd sizes, with gaps.
const ArenaLayout layout{
    {{.parameter = 0, .kind = ParameterKind::bias, .offset = 0, .size = 5},
     {.parameter = 1, .kind = ParameterKind::weight, .offset = 16, .size = 37},
     {.parameter = 2, .kind = ParameterKind::norm, .offset = 64, .size = 1},
     {.parameter = 3, .kind = ParameterKind::weight, .offset = 80, .size = 50003}}};
Mirrored<float> random_arena(std::uint32_t which) {
  Random random(which);
  std::vector<float> values(layout.size());
  for (const ArenaView& view : layout.views) {
    for (std::size_t i = view.offset; i < view.end(); ++i) {
      values[i] = static_cast<float>(random());
    }
  }
  return values;
}
/// A gap belongs to the tensor before it.
Mirrored<std::uint32_t> tensor_of_block() {
  std::vector<std::uint32_t> result;
  for (std::uint32_t t = 0; t < layout.views.size(); ++t) {
    const std::size_t end =
        t + 1 < layout.views.size() ? layout.views[t + 1].offset : layout.size();
    result.resize(end / arena_block, t);
  }
  return result;
}

struct Case {
  std::string_view name;
  OptimizerKind kind = OptimizerKind::sgd;
  bool nesterov = false;
  double momentum = 0.9;
  float gradient_scale = 1.0F;
};
Config config_of(const Case& each) {
  Config config;
  config.optimizer = each.kind;
  config.nesterov = each.nesterov;
  config.momentum = each.momentum;
  config.weight_decay = 0.01;
  config.trust_coefficient = 0.02;
  return config;
}

/// Updates by the kernels.
class Kernels {
 public:
  explicit Kernels(const Case& each) : each_(each), config_(config_of(each)) {}

  void update(std::size_t begin, std::size_t end, Mirrored<float>& parameters,
              const Mirrored<float>& gradients, double lr, int step) {
    std::vector<TensorUpdate> updates;
    for (std::size_t t = 0; t < layout.views.size(); ++t) {
      const bool is_weight = layout.views[t].kind == ParameterKind::weight;
      const auto decay = static_cast<float>(is_weight ? config_.weight_decay : 0.0);
      const bool is_layerwise =
          each_.kind == OptimizerKind::lars || each_.kind == OptimizerKind::lamb;
      const double local = is_weight && is_layerwise
                               ? trust(t, parameters.host(), gradients.host(), decay, step)
                               : 1.0;
      updates.push_back({.lr = lr * local, .weight_decay = decay});
    }
    const Mirrored<TensorUpdate> tensors(updates);
    const UpdateRange range{.begin = begin,
                            .end = end,
                            .parameters = parameters.data(),
                            .gradients = gradients.data(),
                            .tensor_of_block = blocks_.data(),
                            .tensors = tensors.data(),
                            .gradient_scale = each_.gradient_scale};
    const auto momentum = static_cast<float>(config_.momentum);
    switch (each_.kind) {
      case OptimizerKind::sgd:
        return momentum_update(kernel_stream(), range,
                               SgdRule{.momentum = momentum, .nesterov = config_.nesterov},
                               first.data());
      case OptimizerKind::lars:
        return momentum_update(kernel_stream(), range, LarsRule{.momentum = momentum},
                               first.data());
      case OptimizerKind::lion:
        return momentum_update(kernel_stream(), range,
                               LionRule::of({.beta1 = config_.beta1, .beta2 = config_.beta2}),
                               first.data());
      case OptimizerKind::adam:
      case OptimizerKind::adamw:
      case OptimizerKind::lamb:
        return adam_update(kernel_stream(), range, adam_options(step), first.data(), second.data());
    }
  }

  Mirrored<float> first = Mirrored<float>(layout.size());
  Mirrored<float> second = first;

  [[nodiscard]] AdamUpdate adam_options(int step) const {
    return {.beta1 = config_.beta1,
            .beta2 = config_.beta2,
            .eps = config_.eps,
            .correction1 = 1 - std::pow(config_.beta1, step),
            .correction2 = 1 - std::pow(config_.beta2, step),
            .decoupled_decay = each_.kind != OptimizerKind::adam};
  }
  /// AdamW's steps of all values at a learning rate of 1, negated.
  [[nodiscard]] std::vector<float> steps_from(std::vector<float> parameters,
                                              const std::vector<float>& gradients, float decay,
                                              int step) const {
    const AdamUpdate options = adam_options(step);
    AdamRule rule = adam_rule({.beta1 = options.beta1,
                               .beta2 = options.beta2,
                               .eps = options.eps,
                               .correction1 = options.correction1,
                               .correction2 = options.correction2},
                              each_.gradient_scale);
    set_unit_step(rule, decay);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      float m = first[i];
      float v = second[i];
      rule(gradients[i], parameters[i], m, v);
    }
    return parameters;
  }

 private:
  /// Uses the CPU's norms, so that the bits can be compared.
  [[nodiscard]] double trust(std::size_t tensor, const std::vector<float>& parameters,
                             const std::vector<float>& gradients, float decay, int step) const {
    const ArenaView& view = layout.views[tensor];
    const auto norm = [&](const std::vector<float>& values) {
      return std::sqrt(squared_norm(std::span(values).subspan(view.offset, view.size)));
    };
    if (each_.kind == OptimizerKind::lamb) {
      return trust_ratio(1, norm(parameters), norm(steps_from(parameters, gradients, decay, step)),
                         0);
    }
    return trust_ratio(config_.trust_coefficient, norm(parameters),
                       static_cast<double>(each_.gradient_scale) * norm(gradients),
                       static_cast<double>(decay));
  }

  Case each_;
  Config config_;
  Mirrored<std::uint32_t> blocks_ = tensor_of_block();
};

const std::vector<Case> cases{
    {.name = "sgd"},
    {.name = "sgd without momentum", .momentum = 0},
    {.name = "nesterov, clipped", .nesterov = true, .gradient_scale = 0.25F},
    {.name = "adam", .kind = OptimizerKind::adam, .gradient_scale = 0.25F},
    {.name = "adamw", .kind = OptimizerKind::adamw},
    {.name = "lars", .kind = OptimizerKind::lars},
    {.name = "lars, clipped", .kind = OptimizerKind::lars, .gradient_scale = 0.25F},
    {.name = "lamb", .kind = OptimizerKind::lamb},
    {.name = "lamb, clipped", .kind = OptimizerKind::lamb, .gradient_scale = 0.25F},
    {.name = "lion", .kind = OptimizerKind::lion, .gradient_scale = 0.25F},
};

/// The bits must be the CPU's, unless products are contracted: then a few roundings of the sums'
/// terms, which are of magnitude one, may differ.
void check_updated(const Mirrored<float>& actual, std::span<const float> expected) {
  const double slack = kernels_contract() ? 16 * rounding(DataType::f32) : 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto want = static_cast<double>(expected[i]);
    const double difference = std::abs(static_cast<double>(actual[i]) - want);
    if (!(difference <= slack * (1 + std::abs(want)))) ++wrong;
  }
  BOOST_TEST(actual.size() == expected.size());
  BOOST_TEST(wrong == 0U, wrong << " of " << expected.size() << " values differ");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(update)

BOOST_AUTO_TEST_CASE(updates_have_the_same_bits_as_those_of_the_cpu_optimizers) {
  for (const Case& each : cases) {
    BOOST_TEST_CONTEXT(each.name) {
      const std::unique_ptr<Optimizer> optimizer = make_optimizer(config_of(each), layout);
      Kernels kernels(each);
      std::vector<float> expected = random_arena(0).host();
      Mirrored<float> parameters = expected;

      for (int step = 1; step <= steps; ++step) {
        const Mirrored<float> gradients = random_arena(static_cast<std::uint32_t>(step));
        const double lr = 0.013 / step;
        optimizer->update(0, layout.size(), expected, gradients.host(),
                          {.lr = lr, .step = step, .gradient_scale = each.gradient_scale});
        kernels.update(0, 64, parameters, gradients, lr, step);
        kernels.update(64, layout.size(), parameters, gradients, lr, step);
      }

      check_updated(parameters, expected);
      check_updated(kernels.first, optimizer->slot(0));
      if (optimizer->slot_names().size() == 2) check_updated(kernels.second, optimizer->slot(1));
    }
  }
}

BOOST_AUTO_TEST_CASE(an_update_changes_only_its_range) {
  for (const Case& each : cases) {
    BOOST_TEST_CONTEXT(each.name) {
      const Mirrored<float> before = random_arena(0);
      Mirrored<float> after = before;

      Kernels(each).update(16, 64, after, random_arena(1), 0.1, 1);

      BOOST_TEST(std::equal(before.begin(), before.begin() + 16, after.begin()));
      BOOST_TEST(std::equal(before.begin() + 64, before.end(), after.begin() + 64));
      BOOST_TEST(before[16] != after[16]);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_average_has_the_same_bits_as_on_the_cpu_and_obeys_the_decision) {
  const Mirrored<float> before = random_arena(1);
  for (const double decay : {0.0, 0.9}) {
    for (const std::uint32_t made : {0U, 1U}) {
      BOOST_TEST_CONTEXT("decay " << decay << ", made " << made) {
        Mirrored<float> parameters = random_arena(0);
        Mirrored<float> average = before;
        std::vector<float> expected = before.host();
        if (made != 0) {
          update_average(std::span(expected).subspan(64),
                         std::span(std::as_const(parameters).host()).subspan(64), decay);
        }
        const Mirrored<UpdateDecision> decision{
            {.gradient_norm = 0, .gradient_scale = 1, .made = made}};

        average_update(kernel_stream(),
                       {.begin = 64,
                        .end = layout.size(),
                        .parameters = parameters.data(),
                        .gradients = nullptr,
                        .tensor_of_block = nullptr,
                        .tensors = nullptr,
                        .gradient_scale = 1,
                        .decision = decision.data()},
                       decay, average.data());

        check_updated(average, expected);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(an_eps_of_zero_leaves_padding_zero) {
  const Mirrored<float> zeros(16);
  Mirrored<float> first = zeros;
  Mirrored<float> second = zeros;
  Mirrored<float> parameters = zeros;
  const Mirrored<std::uint32_t> block(1, 0);
  const Mirrored<TensorUpdate> tensor{{.lr = 0.1, .weight_decay = 0}};
  adam_update(kernel_stream(),
              {0, 16, parameters.data(), zeros.data(), block.data(), tensor.data(), 1},
              {.beta1 = 0.9,
               .beta2 = 0.999,
               .eps = 0,
               .correction1 = 0.1,
               .correction2 = 0.001,
               .decoupled_decay = false},
              first.data(), second.data());

  BOOST_TEST((parameters == zeros));
}

BOOST_AUTO_TEST_CASE(norms_are_those_of_the_tensors) {
  const Mirrored<std::uint32_t> blocks = tensor_of_block();
  const Mirrored<float> arena = random_arena(3);
  const std::size_t tensors = layout.views.size() + 1;  // the last one has no block
  Mirrored<double> sums(tensors, NAN);
  Mirrored<std::byte> workspace = poisoned_bytes(squared_norms_workspace(blocks.size(), tensors));

  squared_norms(kernel_stream(), arena.data(), blocks.size(), blocks.data(), tensors, sums.data(),
                workspace.data());

  for (std::size_t t = 0; t + 1 < tensors; ++t) {
    const ArenaView& view = layout.views[t];
    const double expected = squared_norm(std::span(arena.host()).subspan(view.offset, view.size));
    BOOST_TEST(std::abs(sums[t] - expected) <= 1e-14 * expected);
  }
  BOOST_TEST(sums.back() == 0);
}

BOOST_AUTO_TEST_CASE(the_norm_of_a_tensor_does_not_depend_on_its_neighbours) {
  // Most are summed in two splits, the last in 32. Sums in another order may be equal by chance.
  std::vector<std::size_t> counts{3, 1, 4096};
  counts.insert(counts.end(), 30, 4097);
  counts.push_back(150001);
  std::vector<std::uint32_t> blocks;
  for (const std::size_t count : counts) {
    blocks.resize(blocks.size() + count, blocks.empty() ? 0 : blocks.back() + 1);
  }
  const std::size_t tensors = blocks.back() + 1;
  std::vector<float> values(blocks.size() * arena_block);
  Random random(5);
  for (float& value : values) value = static_cast<float>(random());
  const Mirrored<float> arena(values);
  const Mirrored<std::uint32_t> blocks_there(blocks);
  const auto norms = [&](std::size_t begin, std::size_t end) {
    Mirrored<double> sums(tensors, NAN);
    Mirrored<std::byte> workspace = poisoned_bytes(squared_norms_workspace(end - begin, tensors));
    squared_norms(kernel_stream(), arena.data() + begin * arena_block, end - begin,
                  blocks_there.data() + begin, tensors, sums.data(), workspace.data());
    return sums;
  };

  const Mirrored<double> all = norms(0, blocks.size());

  for (std::uint32_t t = 0; t < tensors; ++t) {
    const auto [begin, end] = std::equal_range(blocks.begin(), blocks.end(), t);
    const auto first = static_cast<std::size_t>(begin - blocks.begin());
    const auto count = static_cast<std::size_t>(end - begin);
    const double expected =
        squared_norm(std::span(values).subspan(first * arena_block, count * arena_block));
    BOOST_TEST(std::abs(all[t] - expected) <= 1e-13 * expected);
    BOOST_TEST(norms(first, first + count)[t] == all[t]);
  }
}

BOOST_AUTO_TEST_CASE(norms_of_steps_match_those_of_lamb) {
  Kernels kernels({.name = "lamb", .kind = OptimizerKind::lamb, .gradient_scale = 0.5F});
  Mirrored<float> parameters = random_arena(0);
  const Mirrored<float> gradients = random_arena(4);
  kernels.update(0, layout.size(), parameters, random_arena(3), 0.1, 1);
  const Mirrored<std::uint32_t> blocks = tensor_of_block();
  const std::size_t tensors = layout.views.size();
  const float decay = 0.25F;
  const Mirrored<TensorUpdate> updates(tensors, {.lr = 1, .weight_decay = decay});
  Mirrored<double> sums(tensors, NAN);
  Mirrored<std::byte> workspace = poisoned_bytes(squared_norms_workspace(blocks.size(), tensors));

  // Skips the first tensor.
  adam_step_norms(kernel_stream(),
                  {.begin = 16,
                   .end = layout.size(),
                   .parameters = parameters.data(),
                   .gradients = gradients.data(),
                   .tensor_of_block = blocks.data(),
                   .tensors = updates.data(),
                   .gradient_scale = 0.5F},
                  kernels.adam_options(2), kernels.first.data(), kernels.second.data(), tensors,
                  sums.data(), workspace.data());

  BOOST_TEST(sums[0] == 0);
  const std::vector<float> steps_made =
      kernels.steps_from(parameters.host(), gradients.host(), decay, 2);
  for (std::size_t t = 1; t < tensors; ++t) {
    const ArenaView& view = layout.views[t];
    const double expected = squared_norm(std::span(steps_made).subspan(view.offset, view.size));
    // The fp32 steps differ by a few roundings if products are contracted.
    BOOST_TEST(std::abs(sums[t] - expected) <= (kernels_contract() ? 1e-6 : 1e-14) * expected);
  }
}

BOOST_AUTO_TEST_SUITE_END()
