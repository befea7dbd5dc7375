#include "../../src/optim/device/device_optimizer.hpp"
#include "lockstep/config/config.hpp"

#include "engine/gpu/host_device.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/philox.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

using namespace lockstep;

namespace {

/// Odd sizes with gaps between them, and other learning rates for two tensors.
ArenaLayout odd_layout() {
  return {{{.parameter = 0, .kind = ParameterKind::bias, .offset = 0, .size = 12},
           {.parameter = 1, .kind = ParameterKind::weight, .offset = 16, .size = 36, .lr_scale = 3},
           {.parameter = 2, .kind = ParameterKind::norm, .offset = 64, .size = 4, .lr_scale = 0},
           {.parameter = 3, .kind = ParameterKind::weight, .offset = 80, .size = 20004}}};
}

std::vector<float> random_arena(const ArenaLayout& layout, std::uint32_t which) {
  PhiloxStream random(13, RandomPurpose::synthetic_data, 0, which);
  std::vector<float> values(layout.size());
  for (const ArenaView& view : layout.views) {
    for (std::size_t i = view.offset; i < view.end(); ++i) {
      values[i] = static_cast<float>(random.next_normal());
    }
  }
  return values;
}

struct Case {
  std::string_view name;
  OptimizerKind kind;
  bool nesterov = false;
  bool decay_norm_and_bias = false;
  float gradient_scale = 1.0F;
};
const std::vector<Case> cases{
    {.name = "sgd", .kind = OptimizerKind::sgd},
    {.name = "nesterov", .kind = OptimizerKind::sgd, .nesterov = true},
    {.name = "sgd, all decay", .kind = OptimizerKind::sgd, .decay_norm_and_bias = true},
    {.name = "sgd, clipped", .kind = OptimizerKind::sgd, .gradient_scale = 0.25F},
    {.name = "adam", .kind = OptimizerKind::adam},
    {.name = "adamw, clipped", .kind = OptimizerKind::adamw, .gradient_scale = 0.25F},
    {.name = "lars", .kind = OptimizerKind::lars},
    {.name = "lars, clipped", .kind = OptimizerKind::lars, .gradient_scale = 0.25F},
    {.name = "lamb", .kind = OptimizerKind::lamb},
    {.name = "lamb, clipped", .kind = OptimizerKind::lamb, .gradient_scale = 0.25F},
    {.name = "lion, clipped", .kind = OptimizerKind::lion, .gradient_scale = 0.25F},
};

Config config_of(const Case& each) {
  Config config;
  config.optimizer = each.kind;
  config.nesterov = each.nesterov;
  config.weight_decay = 0.01;
  config.decay_norm_and_bias = each.decay_norm_and_bias;
  config.trust_coefficient = 0.02;
  config.ema_decay = 0.75;
  return config;
}

/// An arena in device memory.
class DeviceValues final {
 public:
  DeviceValues(gpu::Device& device, std::size_t size) : device_(device), values_(device, size) {}
  void set(const std::vector<float>& host) {
    device_.copy_to_device(values_.data(), host.data(), values_.bytes());
    device_.synchronize();
  }
  [[nodiscard]] std::span<float> span() const { return {values_.data(), values_.size()}; }

 private:
  gpu::Device& device_;
  gpu::DeviceArray<float> values_;
};

std::vector<float> host_copy(gpu::Device& device, std::span<const float> values) {
  std::vector<float> host(values.size());
  device.copy_to_host(host.data(), values.data(), values.size_bytes());
  device.synchronize();
  return host;
}

void check_norms_of_parts(OptimizerKind kind) {
  // A rank keeps parts of two units; the sum over ranks adds the parts of the others.
  ArenaLayout layout = odd_layout();
  const Config config = config_of({.name = "", .kind = kind});
  const std::shared_ptr<gpu::Device> device =
      gpu::make_host_device(gpu::HostWork::late, gpu::HostMemoryGuard::on);
  const std::size_t cut = 64;
  layout.units = {{.begin = 0, .end = cut}, {.begin = cut, .end = layout.size()}};
  int sums = 0;
  const auto add_others = [&sums](std::span<double> norms) {
    ++sums;
    for (std::size_t i = 0; i < norms.size(); ++i) norms[i] += 10 + static_cast<double>(i);
  };
  const auto expected = make_optimizer(config, layout, add_others);
  const auto actual = gpu::make_device_optimizer(device, config, layout, add_others);
  std::vector<float> first = random_arena(layout, 0);
  std::vector<float> second = random_arena(layout, 1);
  DeviceValues device_first(*device, layout.size());
  DeviceValues device_second(*device, layout.size());
  DeviceValues device_gradients(*device, layout.size());
  device_first.set(first);
  device_second.set(second);
  const std::array parts{ParameterRange{0, cut, first}, ParameterRange{cut, layout.size(), second}};
  const std::array device_parts{ParameterRange{0, cut, device_first.span()},
                                ParameterRange{cut, layout.size(), device_second.span()}};
  const std::size_t allocated = device->peak_bytes();

  for (int step = 1; step <= 5; ++step) {
    const std::vector<float> gradients = random_arena(layout, static_cast<std::uint32_t>(1 + step));
    device_gradients.set(gradients);
    const UpdateOptions options{.lr = 0.02, .step = step, .gradient_scale = 0.25F};
    expected->measure(parts, gradients, options);
    actual->measure(device_parts, device_gradients.span(), options);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      expected->update(parts[i].begin, parts[i].end, parts[i].parameters, gradients, options);
      actual->update(device_parts[i].begin, device_parts[i].end, device_parts[i].parameters,
                     device_gradients.span(), options);
    }
  }

  BOOST_TEST(device->peak_bytes() == allocated);
  BOOST_TEST(sums == 10);
  const std::vector<float> device_values[] = {host_copy(*device, device_first.span()),
                                              host_copy(*device, device_second.span())};
  for (std::size_t i = 0; i < layout.size(); ++i) {
    BOOST_REQUIRE_SMALL(device_values[0][i] - first[i], 1e-6F);
    BOOST_REQUIRE_SMALL(device_values[1][i] - second[i], 1e-6F);
  }
  BOOST_TEST((first != random_arena(layout, 0)));
}

}  // namespace

BOOST_AUTO_TEST_CASE(twenty_steps_on_a_device_match_those_on_a_cpu) {
  const ArenaLayout layout = odd_layout();
  for (const Case& each : cases) {
    BOOST_TEST_CONTEXT(each.name) {
      const std::shared_ptr<gpu::Device> device =
          gpu::make_host_device(gpu::HostWork::late, gpu::HostMemoryGuard::on);
      const auto expected = make_optimizer(config_of(each), layout);
      const auto actual = gpu::make_device_optimizer(device, config_of(each), layout);
      BOOST_TEST(actual->name() == expected->name());
      BOOST_TEST(actual->needs_all_gradients() == expected->needs_all_gradients());
      BOOST_TEST(std::vector(actual->slot_names().begin(), actual->slot_names().end()) ==
                 std::vector(expected->slot_names().begin(), expected->slot_names().end()));
      std::vector<float> parameters = random_arena(layout, 0);
      DeviceValues device_parameters(*device, layout.size());
      DeviceValues device_gradients(*device, layout.size());
      device_parameters.set(parameters);
      for (int step = 1; step <= 20; ++step) {
        const std::vector<float> gradients = random_arena(layout, static_cast<std::uint32_t>(step));
        const UpdateOptions options{.lr = 0.02 / step,
                                    .step = step,
                                    .gradient_scale = each.gradient_scale,
                                    .ema_decay = step == 1       ? 0
                                                 : step % 2 == 0 ? 1
                                                                 : 0.75};
        device_gradients.set(gradients);
        // LARS and LAMB need whole arenas; the others update two ranges, cut between tensors like
        // buckets.
        const std::size_t cut = expected->needs_all_gradients() ? layout.size() : 52;
        expected->update(0, layout.size(), parameters, gradients, options);
        actual->update(0, cut, device_parameters.span(), device_gradients.span(), options);
        actual->update(cut, layout.size(), device_parameters.span(), device_gradients.span(),
                       options);
      }
      const auto compare = [](const std::vector<float>& left, std::span<const float> right) {
        for (std::size_t i = 0; i < left.size(); ++i) {
          BOOST_REQUIRE_SMALL(left[i] - right[i], 1e-6F);
        }
      };
      compare(host_copy(*device, device_parameters.span()), parameters);
      for (std::size_t i = 0; i < actual->slot_names().size(); ++i) {
        compare(host_copy(*device, actual->slot(i)), expected->slot(i));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(lars_and_lamb_sum_the_norms_of_separate_parts) {
  for (const OptimizerKind kind : {OptimizerKind::lars, OptimizerKind::lamb}) {
    BOOST_TEST_CONTEXT("optimizer " << static_cast<int>(kind)) {
      check_norms_of_parts(kind);
    }
  }
}

BOOST_AUTO_TEST_CASE(the_squared_norm_on_a_device_matches_that_on_a_cpu) {
  const ArenaLayout layout = odd_layout();
  const std::shared_ptr<gpu::Device> device =
      gpu::make_host_device(gpu::HostWork::late, gpu::HostMemoryGuard::on);
  const auto optimizer = gpu::make_device_optimizer(device, Config{}, layout);
  const std::vector<float> values = random_arena(layout, 1);
  DeviceValues device_values(*device, layout.size());
  device_values.set(values);

  BOOST_TEST(optimizer->squared_norm(device_values.span()) == squared_norm(values),
             boost::test_tools::tolerance(1e-12));
}

BOOST_AUTO_TEST_CASE(a_device_decides_like_the_host) {
  const ArenaLayout layout = odd_layout();
  const std::vector<float> gradients = random_arena(layout, 1);
  std::vector<float> infinite = gradients;
  infinite[90] = std::numeric_limits<float>::infinity();
  std::vector<float> not_a_number = gradients;
  not_a_number[3] = std::numeric_limits<float>::quiet_NaN();
  const double norm = std::sqrt(squared_norm(gradients));

  struct Decision {
    const char* what;
    const std::vector<float>& gradients;
    float samples;
    float not_finite;
    UpdateInputs inputs;
    bool made;
    double gradient_norm;
    double gradient_scale;
  };
  const Decision decisions[] = {
      {"all samples", gradients, 64, 0, {.all_samples = 64}, true, 0, 1},
      {"a sample is missing", gradients, 63, 0, {.all_samples = 64}, false, 0, 1},
      {"not finite, without skipping", infinite, 64, 1, {.all_samples = 64}, true, 0, 1},
      {"clipped",
       gradients,
       64,
       0,
       {.all_samples = 64, .clip_norm = norm / 4},
       true,
       norm,
       norm / 4 / (norm + 1e-6)},
      {"short enough", gradients, 64, 0, {.all_samples = 64, .clip_norm = 2 * norm}, true, norm, 1},
      {"scaled",
       gradients,
       64,
       0,
       {.all_samples = 64, .scale = 0x1p-10, .skips_overflow = true},
       true,
       0x1p-10 * norm,
       0x1p-10},
      {"scaled and clipped",
       gradients,
       64,
       0,
       {.all_samples = 64, .scale = 0.5, .clip_norm = norm / 4, .skips_overflow = true},
       true,
       norm / 2,
       0.5 * (norm / 4) / (norm / 2 + 1e-6)},
      {"clipped, NaN",
       not_a_number,
       64,
       0,
       {.all_samples = 64, .clip_norm = norm},
       true,
       std::numeric_limits<double>::quiet_NaN(),
       std::numeric_limits<double>::quiet_NaN()},
      {"overflow",
       infinite,
       64,
       0,
       {.all_samples = 64, .scale = 0.5, .skips_overflow = true},
       false,
       std::numeric_limits<double>::infinity(),
       0.5},
      {"NaN",
       not_a_number,
       64,
       0,
       {.all_samples = 64, .scale = 0.5, .skips_overflow = true},
       false,
       std::numeric_limits<double>::quiet_NaN(),
       0.5},
      {"a loss that is not finite",
       gradients,
       64,
       2,
       {.all_samples = 64, .scale = 0.5, .skips_overflow = true},
       false,
       norm / 2,
       0.5},
  };
  for (const OptimizerKind kind :
       {OptimizerKind::sgd, OptimizerKind::adamw, OptimizerKind::lars, OptimizerKind::lamb}) {
    const Config config = config_of({.name = "", .kind = kind});
    for (const Decision& each : decisions) {
      BOOST_TEST_CONTEXT("optimizer " << static_cast<int>(kind) << ", " << each.what) {
        const std::shared_ptr<gpu::Device> device =
            gpu::make_host_device(gpu::HostWork::late, gpu::HostMemoryGuard::on);
        const auto expected = gpu::make_device_optimizer(device, config, layout);
        const auto actual = gpu::make_device_optimizer(device, config, layout);
        const std::vector<float> start = random_arena(layout, 0);
        DeviceValues by_host(*device, layout.size());
        DeviceValues by_device(*device, layout.size());
        DeviceValues device_gradients(*device, layout.size());
        DeviceValues sums(*device, 2);
        by_host.set(start);
        by_device.set(start);
        device_gradients.set(each.gradients);
        sums.set({each.samples, each.not_finite});
        UpdateInputs inputs = each.inputs;
        inputs.gradients = device_gradients.span();
        inputs.samples = &sums.span()[0];
        inputs.not_finite = &sums.span()[1];

        BOOST_TEST(actual->decide(inputs));
        actual->update(0, layout.size(), by_device.span(), device_gradients.span(),
                       {.lr = 0.1, .as_decided = true, .ema_decay = 0.75});
        BOOST_TEST(gpu::work_left(*device) > 0);  // nothing has waited for the device
        device->synchronize();

        const UpdateOutcome outcome = actual->outcome();
        BOOST_TEST(outcome.made == each.made);
        if (std::isnan(each.gradient_norm)) {
          BOOST_TEST(std::isnan(outcome.gradient_norm));
        } else if (std::isinf(each.gradient_norm)) {
          BOOST_TEST(outcome.gradient_norm == each.gradient_norm);
        } else {
          BOOST_TEST(outcome.gradient_norm == each.gradient_norm,
                     boost::test_tools::tolerance(1e-12));
        }
        if (each.made) {
          expected->update(0, layout.size(), by_host.span(), device_gradients.span(),
                           {.lr = 0.1,
                            .gradient_scale = static_cast<float>(each.gradient_scale),
                            .ema_decay = 0.75});
        }
        if (std::isnan(each.gradient_scale)) {
          BOOST_TEST(std::isnan(host_copy(*device, by_device.span())[0]));
          continue;
        }
        const auto bits = [&](std::span<const float> values) {
          const std::vector<float> host = host_copy(*device, values);
          return crc32c(std::as_bytes(std::span(host)));
        };
        BOOST_TEST(bits(by_device.span()) == bits(by_host.span()));
        BOOST_TEST((bits(by_device.span()) != crc32c(std::as_bytes(std::span(start)))) ==
                   each.made);
        for (std::size_t i = 0; i < actual->slot_names().size(); ++i) {
          BOOST_TEST(bits(actual->slot(i)) == bits(expected->slot(i)));
        }
      }
    }
  }
}
