#include "lockstep/optim/optimizer.hpp"
#include "../../src/optim/tensor_norms.hpp"
#include "lockstep/config/config.hpp"

#include "lockstep/core/philox.hpp"

#include <omp.h>
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

using namespace lockstep;

namespace {

constexpr int steps = 20;

/// Odd sizes with gaps between them; the last is large enough to be split between threads.
ArenaLayout odd_layout() {
  return {{{.parameter = 0, .kind = ParameterKind::bias, .offset = 0, .size = 5},
           {.parameter = 1, .kind = ParameterKind::weight, .offset = 16, .size = 37},
           {.parameter = 2, .kind = ParameterKind::embedding, .offset = 64, .size = 1},
           {.parameter = 3, .kind = ParameterKind::weight, .offset = 80, .size = 20003}}};
}

/// Random values in each view; zeros in the gaps and in the padding, the last three values of view
/// 1.
std::vector<float> random_arena(const ArenaLayout& layout, std::uint32_t which) {
  PhiloxStream random(11, RandomPurpose::synthetic_data, 0, which);
  std::vector<float> values(layout.size());
  for (const ArenaView& view : layout.views) {
    const std::size_t padding = view.parameter == 1 ? 3 : 0;
    for (std::size_t i = view.offset; i < view.end() - padding; ++i) {
      values[i] = static_cast<float>(random.next_normal());
    }
  }
  return values;
}

struct Case {
  std::string_view name;
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0.01;
  bool decay_norm_and_bias = false;
  float gradient_scale = 1.0F;
};
Config config_of(const Case& each) {
  Config config;
  config.optimizer = each.kind;
  config.momentum = each.momentum;
  config.nesterov = each.nesterov;
  config.weight_decay = each.weight_decay;
  config.decay_norm_and_bias = each.decay_norm_and_bias;
  config.trust_coefficient = 0.02;
  return config;
}

double rate_at(int step) {
  return 0.02 / step;
}

/// The same training in double, value by value, by the published formulas.
class Reference {
 public:
  Reference(const Config& config, const ArenaLayout& layout, const std::vector<float>& start)
      : config_(config),
        layout_(layout),
        w(start.begin(), start.end()),
        first_(start.size()),
        second_(start.size()) {}

  void update(const std::vector<float>& gradients, double scale, int step) {
    for (const ArenaView& view : layout_.views) {
      const bool is_weight = view.kind == ParameterKind::weight;
      const double decay = is_weight || config_.decay_norm_and_bias ? config_.weight_decay : 0.0;
      const double local = !is_weight ? 1.0
                           : config_.optimizer == OptimizerKind::lamb
                               ? step_ratio(view, gradients, scale, decay, step)
                               : trust_ratio(view, gradients, scale, decay);
      for (std::size_t i = view.offset; i < view.end(); ++i) {
        one(i, scale * static_cast<double>(gradients[i]), decay, local, step);
      }
    }
  }

 private:
  double trust_ratio(const ArenaView& view, const std::vector<float>& gradients, double scale,
                     double decay) const {
    double ww = 0;
    double gg = 0;
    for (std::size_t i = view.offset; i < view.end(); ++i) {
      ww += w[i] * w[i];
      gg += scale * scale * static_cast<double>(gradients[i]) * gradients[i];
    }
    if (ww == 0 || gg == 0) return 1.0;
    return config_.trust_coefficient * std::sqrt(ww) / (std::sqrt(gg) + decay * std::sqrt(ww));
  }

  /// LAMB's ratio of the norm of the weights to the norm of their step.
  double step_ratio(const ArenaView& view, const std::vector<float>& gradients, double scale,
                    double decay, int step) const {
    double ww = 0;
    double uu = 0;
    for (std::size_t i = view.offset; i < view.end(); ++i) {
      const double g = scale * static_cast<double>(gradients[i]);
      const double m = config_.beta1 * first_[i] + (1 - config_.beta1) * g;
      const double v = config_.beta2 * second_[i] + (1 - config_.beta2) * g * g;
      const double u = m / (1 - std::pow(config_.beta1, step)) /
                           (std::sqrt(v / (1 - std::pow(config_.beta2, step))) + config_.eps) +
                       decay * w[i];
      ww += w[i] * w[i];
      uu += u * u;
    }
    return ww == 0 || uu == 0 ? 1.0 : std::sqrt(ww) / std::sqrt(uu);
  }

  void one(std::size_t i, double g, double decay, double local, int step) {
    const double lr = rate_at(step);
    switch (config_.optimizer) {
      case OptimizerKind::sgd: {
        g += decay * w[i];
        first_[i] = step == 1 ? g : config_.momentum * first_[i] + g;
        w[i] -= lr * (config_.nesterov ? g + config_.momentum * first_[i] : first_[i]);
        break;
      }
      case OptimizerKind::lars:
        first_[i] = config_.momentum * first_[i] + lr * local * (g + decay * w[i]);
        w[i] -= first_[i];
        break;
      case OptimizerKind::lion: {
        const double c = config_.beta1 * first_[i] + (1 - config_.beta1) * g;
        w[i] -= lr * ((c > 0) - (c < 0) + decay * w[i]);
        first_[i] = config_.beta2 * first_[i] + (1 - config_.beta2) * g;
        break;
      }
      case OptimizerKind::lamb: {
        first_[i] = config_.beta1 * first_[i] + (1 - config_.beta1) * g;
        second_[i] = config_.beta2 * second_[i] + (1 - config_.beta2) * g * g;
        const double m = first_[i] / (1 - std::pow(config_.beta1, step));
        const double v = second_[i] / (1 - std::pow(config_.beta2, step));
        w[i] -= lr * local * (m / (std::sqrt(v) + config_.eps) + decay * w[i]);
        break;
      }
      case OptimizerKind::adam:
      case OptimizerKind::adamw: {
        if (config_.optimizer == OptimizerKind::adam)
          g += decay * w[i];
        else
          w[i] -= lr * decay * w[i];
        first_[i] = config_.beta1 * first_[i] + (1 - config_.beta1) * g;
        second_[i] = config_.beta2 * second_[i] + (1 - config_.beta2) * g * g;
        const double m = first_[i] / (1 - std::pow(config_.beta1, step));
        const double v = second_[i] / (1 - std::pow(config_.beta2, step));
        w[i] -= lr * m / (std::sqrt(v) + config_.eps);
        break;
      }
    }
  }

  Config config_;
  ArenaLayout layout_;

 public:
  std::vector<double> w;

 private:
  std::vector<double> first_;
  std::vector<double> second_;
};

struct Trained {
  std::vector<float> parameters;
  std::vector<std::vector<float>> slots;
  friend bool operator==(const Trained&, const Trained&) = default;
};

/// Trains with one update per range of the arena, from cuts[i] to cuts[i + 1].
Trained train(const Case& each, const std::vector<std::size_t>& cuts) {
  const ArenaLayout layout = odd_layout();
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(config_of(each), layout);
  Trained result{.parameters = random_arena(layout, 0), .slots = {}};
  for (int step = 1; step <= steps; ++step) {
    std::vector<float> gradients = random_arena(layout, static_cast<std::uint32_t>(step));
    gradients.resize(layout.size() + 24, 7.0F);  // the tail, which no update reads
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      optimizer->update(cuts[i], cuts[i + 1], result.parameters, gradients,
                        {.lr = rate_at(step), .step = step, .gradient_scale = each.gradient_scale});
    }
  }
  for (std::size_t i = 0; i < optimizer->slot_names().size(); ++i) {
    const std::span<float> slot = optimizer->slot(i);
    result.slots.emplace_back(slot.begin(), slot.end());
  }
  return result;
}

Trained train_whole(const Case& each) {
  return train(each, {0, odd_layout().size() + 24});
}

const std::vector<Case> cases{
    {.name = "sgd"},
    {.name = "sgd without momentum", .momentum = 0},
    {.name = "nesterov", .nesterov = true},
    {.name = "sgd, clipped", .gradient_scale = 0.25F},
    {.name = "sgd, all decay", .decay_norm_and_bias = true},
    {.name = "adam", .kind = OptimizerKind::adam},
    {.name = "adam, clipped", .kind = OptimizerKind::adam, .gradient_scale = 0.25F},
    {.name = "adamw", .kind = OptimizerKind::adamw, .weight_decay = 0.5},
    {.name = "adamw, all decay",
     .kind = OptimizerKind::adamw,
     .weight_decay = 0.5,
     .decay_norm_and_bias = true},
    {.name = "lars", .kind = OptimizerKind::lars},
    {.name = "lars, clipped", .kind = OptimizerKind::lars, .gradient_scale = 0.25F},
    {.name = "lamb", .kind = OptimizerKind::lamb},
    {.name = "lamb, clipped", .kind = OptimizerKind::lamb, .gradient_scale = 0.25F},
    {.name = "lamb, all decay",
     .kind = OptimizerKind::lamb,
     .weight_decay = 0.5,
     .decay_norm_and_bias = true},
    {.name = "lion", .kind = OptimizerKind::lion, .weight_decay = 0.5},
    {.name = "lion, clipped", .kind = OptimizerKind::lion, .gradient_scale = 0.25F},
};

}  // namespace

BOOST_AUTO_TEST_CASE(twenty_steps_follow_the_formula_in_double) {
  for (const Case& each : cases) {
    BOOST_TEST_CONTEXT(each.name) {
      const ArenaLayout layout = odd_layout();
      Reference reference(config_of(each), layout, random_arena(layout, 0));
      for (int step = 1; step <= steps; ++step) {
        reference.update(random_arena(layout, static_cast<std::uint32_t>(step)),
                         static_cast<double>(each.gradient_scale), step);
      }

      const Trained trained = train_whole(each);

      double worst = 0;
      for (std::size_t i = 0; i < layout.size(); ++i) {
        worst =
            std::max(worst, std::abs(static_cast<double>(trained.parameters[i]) - reference.w[i]));
      }
      // The values have magnitude one, where fp32 rounds by 6e-8; each step rounds a few times.
      BOOST_TEST(worst < 4e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(updates_of_separate_ranges_have_the_same_bits_as_one_update) {
  for (const Case& each : cases) {
    BOOST_TEST_CONTEXT(each.name) {
      const Trained whole = train_whole(each);

      BOOST_TEST((train(each, {0, 16, 64, 80, odd_layout().size() + 24}) == whole));
      BOOST_TEST((train(each, {0, 64, odd_layout().size()}) == whole));
    }
  }
}

BOOST_AUTO_TEST_CASE(any_number_of_threads_gives_the_same_bits) {
  for (const Case& each : cases) {
    BOOST_TEST_CONTEXT(each.name) {
      omp_set_num_threads(1);
      const Trained alone = train_whole(each);

      for (const int threads : {2, 3, 7}) {
        omp_set_num_threads(threads);
        BOOST_TEST((train_whole(each) == alone), threads << " threads differ from one");
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(padding_and_gaps_stay_zero) {
  for (const Case& each : cases) {
    BOOST_TEST_CONTEXT(each.name) {
      const Trained trained = train_whole(each);

      const ArenaLayout layout = odd_layout();
      std::vector<bool> is_padding(layout.size(), true);
      for (const ArenaView& view : layout.views) {
        const std::size_t padding = view.parameter == 1 ? 3 : 0;
        std::fill(is_padding.begin() + static_cast<std::ptrdiff_t>(view.offset),
                  is_padding.begin() + static_cast<std::ptrdiff_t>(view.end() - padding), false);
      }
      for (std::size_t i = 0; i < layout.size(); ++i) {
        if (!is_padding[i]) continue;
        BOOST_REQUIRE_EQUAL(trained.parameters[i], 0.0F);
        for (const auto& slot : trained.slots) BOOST_REQUIRE_EQUAL(slot[i], 0.0F);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(only_weights_decay_unless_norms_and_biases_are_included) {
  for (const Case& each : cases) {
    BOOST_TEST_CONTEXT(each.name) {
      const ArenaLayout layout = odd_layout();
      const std::unique_ptr<Optimizer> optimizer = make_optimizer(config_of(each), layout);
      const std::vector<float> before = random_arena(layout, 0);
      std::vector<float> after = before;
      const std::vector<float> no_gradient(layout.size());

      optimizer->update(0, layout.size(), after, no_gradient, {.lr = 0.1, .step = 1});

      BOOST_TEST(after[16] != before[16]);
      BOOST_TEST((after[0] != before[0]) == each.decay_norm_and_bias);
      BOOST_TEST((after[64] != before[64]) == each.decay_norm_and_bias);
    }
  }
}

BOOST_AUTO_TEST_CASE(tensors_have_their_own_learning_rates_and_frozen_ones_stay) {
  constexpr double factor = 0.25;  // exact
  for (const Case& each : cases) {
    BOOST_TEST_CONTEXT(each.name) {
      ArenaLayout layout = odd_layout();
      const auto trained = [&](double lr) {
        const std::unique_ptr<Optimizer> optimizer = make_optimizer(config_of(each), layout);
        std::vector<float> values = random_arena(layout, 0);
        for (int step = 1; step <= steps; ++step) {
          optimizer->update(0, layout.size(), values,
                            random_arena(layout, static_cast<std::uint32_t>(step)),
                            {.lr = lr, .step = step, .gradient_scale = each.gradient_scale});
        }
        return values;
      };
      const std::vector<float> usual = trained(0.125);
      const std::vector<float> slower = trained(0.125 * factor);
      layout.views[1].lr_scale = factor;
      layout.views[2].lr_scale = 0;

      const std::vector<float> scaled = trained(0.125);

      const std::vector<float> start = random_arena(layout, 0);
      const std::vector<float>* const expected[] = {&usual, &slower, &start, &usual};
      for (std::size_t i = 0; i < layout.views.size(); ++i) {
        BOOST_TEST((std::ranges::equal(layout.views[i].in(std::span(scaled)),
                                       layout.views[i].in(std::span(*expected[i])))));
      }
      BOOST_TEST(usual[16] != slower[16]);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_update_changes_only_its_range) {
  const ArenaLayout layout = odd_layout();
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(Config{}, layout);
  const std::vector<float> before = random_arena(layout, 0);
  std::vector<float> after = before;

  optimizer->update(16, 64, after, random_arena(layout, 1), {.lr = 0.1, .step = 1});

  BOOST_TEST(std::equal(before.begin(), before.begin() + 16, after.begin()));
  BOOST_TEST(std::equal(before.begin() + 64, before.end(), after.begin() + 64));
  BOOST_TEST(before[16] != after[16]);
}

BOOST_AUTO_TEST_CASE(slots_have_pytorchs_names_and_start_at_zero) {
  const ArenaLayout layout = odd_layout();
  struct Expected {
    OptimizerKind kind;
    std::string_view name;
    std::vector<std::string> slots;
    bool needs_all_gradients;
  };
  for (const Expected& each :
       {Expected{OptimizerKind::sgd, "sgd", {"momentum_buffer"}, false},
        Expected{OptimizerKind::adam, "adam", {"exp_avg", "exp_avg_sq"}, false},
        Expected{OptimizerKind::adamw, "adamw", {"exp_avg", "exp_avg_sq"}, false},
        Expected{OptimizerKind::lars, "lars", {"momentum_buffer"}, true},
        Expected{OptimizerKind::lamb, "lamb", {"exp_avg", "exp_avg_sq"}, true},
        Expected{OptimizerKind::lion, "lion", {"exp_avg"}, false}}) {
    Config config;
    config.optimizer = each.kind;
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(config, layout);

    BOOST_TEST(optimizer->name() == each.name);
    BOOST_TEST(optimizer->needs_all_gradients() == each.needs_all_gradients);
    BOOST_TEST(std::vector(optimizer->slot_names().begin(), optimizer->slot_names().end()) ==
               each.slots);
    BOOST_TEST(slot_count(config) == each.slots.size());
    for (std::size_t i = 0; i < each.slots.size(); ++i) {
      const std::span<float> slot = optimizer->slot(i);
      BOOST_TEST(slot.size() == layout.size());
      BOOST_TEST(std::all_of(slot.begin(), slot.end(), [](float value) { return value == 0; }));
    }
  }
}

BOOST_AUTO_TEST_CASE(lion_hides_no_gradient_that_is_not_a_number) {
  const ArenaLayout layout = odd_layout();
  Config config;
  config.optimizer = OptimizerKind::lion;
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(config, layout);
  std::vector<float> weights(layout.size(), 1.0F);
  std::vector<float> gradients(layout.size());
  gradients[layout.views[0].offset] = std::numeric_limits<float>::quiet_NaN();

  optimizer->update(0, layout.size(), weights, gradients, {.lr = 0.1});

  BOOST_TEST(std::isnan(weights[layout.views[0].offset]));
  BOOST_TEST(weights[layout.views[0].offset + 1] == 1.0F);  // a zero has no sign
}

BOOST_AUTO_TEST_CASE(lars_uses_the_plain_rate_if_a_norm_is_zero) {
  const ArenaLayout layout{
      {{.parameter = 0, .kind = ParameterKind::weight, .offset = 0, .size = 4}}};
  Config config;
  config.optimizer = OptimizerKind::lars;
  config.weight_decay = 0.5;
  std::vector<float> zeros(layout.size());
  std::vector<float> ones(layout.size(), 1.0F);
  const std::vector<float> gradient(layout.size(), 2.0F);
  const std::vector<float> no_gradient(layout.size());

  make_optimizer(config, layout)->update(0, 16, zeros, gradient, {.lr = 0.25, .step = 1});
  make_optimizer(config, layout)->update(0, 16, ones, no_gradient, {.lr = 0.25, .step = 1});

  BOOST_TEST(zeros[0] == -0.5F);
  BOOST_TEST(ones[0] == 1.0F - 0.25F * 0.5F);
}

BOOST_AUTO_TEST_CASE(the_norm_of_a_lamb_step_is_the_norm_of_its_tensor_times_the_rate) {
  const ArenaLayout layout{
      {{.parameter = 0, .kind = ParameterKind::weight, .offset = 0, .size = 4}}};
  Config config;
  config.optimizer = OptimizerKind::lamb;
  config.weight_decay = 0;
  std::vector<float> zeros(layout.size());
  std::vector<float> ones(layout.size(), 1.0F);
  std::vector<float> still(layout.size(), 1.0F);
  // At the first step m_hat / sqrt(v_hat) is the sign of the gradient.
  const std::vector<float> gradient(layout.size(), 3.0F);
  const std::vector<float> no_gradient(layout.size());

  make_optimizer(config, layout)->update(0, 16, zeros, gradient, {.lr = 0.25, .step = 1});
  make_optimizer(config, layout)->update(0, 16, ones, gradient, {.lr = 0.25, .step = 1});
  make_optimizer(config, layout)->update(0, 16, still, no_gradient, {.lr = 0.25, .step = 1});
  std::vector<float> twos(layout.size(), 2.0F);
  make_optimizer(config, layout)->update(0, 16, twos, gradient, {.lr = 0.25, .step = 1});

  BOOST_TEST(zeros[0] == -0.25F, boost::test_tools::tolerance(1e-6F));
  BOOST_TEST(ones[0] == 0.75F, boost::test_tools::tolerance(1e-6F));
  BOOST_TEST(twos[0] == 1.5F, boost::test_tools::tolerance(1e-6F));
  BOOST_TEST(still[0] == 1.0F);
}

BOOST_AUTO_TEST_CASE(norms_of_a_tensor_on_other_ranks_do_not_add_up_over_steps) {
  const ArenaLayout layout{.views = {}, .units = {{.begin = 0, .end = 0}}};
  std::vector<Segment> segments(1);
  segments[0].adapts = true;  // and empty: other ranks keep all of it
  TensorNorms norms(layout, segments, [](std::span<double> squares) {
    squares[0] += 9;
    squares[1] += 16;
  });
  for (int step = 0; step < 3; ++step) {
    norms.take_over_shards({}, [](const Segment&, std::span<const float>) { return 0.0; });
    BOOST_TEST(norms.of_weights(segments[0]) == 3);
    BOOST_TEST(norms.of_moves(segments[0]) == 4);
  }
}
