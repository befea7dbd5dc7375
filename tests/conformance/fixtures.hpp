#pragma once

#include "conformance/oracle.hpp"
#include "lockstep/core/philox.hpp"

#include <cmath>
#include <cstdint>
#include <utility>

namespace lockstep::oracle {

/// Parameters of both signs near their usual magnitude, and running statistics that differ from the
/// initial ones, so that a mixed-up scale, shift or statistic changes the results.
[[nodiscard]] inline State random_state(const Graph& graph, std::uint64_t seed) {
  PhiloxStream random(seed, RandomPurpose::initialization, 0, 0);
  State state;
  for (const Parameter& parameter : graph.parameters()) {
    const double spread = parameter.kind == ParameterKind::weight
                              ? std::sqrt(2.0 * static_cast<double>(parameter.shape[0]) /
                                          static_cast<double>(parameter.shape.elements()))
                              : 0.3;
    const double centre = parameter.initialization == Initialization::ones ? 1.0 : 0.1;
    Values values(static_cast<std::size_t>(parameter.shape.elements()));
    for (double& value : values) {
      const double offset = parameter.kind == ParameterKind::weight ? 0.0 : centre;
      value = static_cast<float>(offset + spread * random.next_normal());
    }
    state.parameters.push_back(std::move(values));
  }
  for (const RunningStatistic& statistic : graph.statistics()) {
    Values values(static_cast<std::size_t>(statistic.channels));
    for (double& value : values) {
      value = static_cast<float>(statistic.initial_value == 0 ? 0.2 * random.next_normal()
                                                              : 0.5 + random.next_double());
    }
    state.statistics.push_back(std::move(values));
  }
  return state;
}

[[nodiscard]] inline Problem random_problem(const Graph& graph, std::int64_t batch_size,
                                            std::uint64_t seed) {
  PhiloxStream random(seed, RandomPurpose::synthetic_data, 0, 0);
  Problem problem{.batch_size = batch_size, .images = {}, .labels = {}, .loss_scale = 0.375};
  problem.images.resize(static_cast<std::size_t>(batch_size * graph.input_shape().elements()));
  for (double& value : problem.images) value = static_cast<float>(random.next_normal());
  for (std::int64_t n = 0; n < batch_size; ++n) {
    problem.labels.push_back(
        static_cast<std::int32_t>(random.next_below(static_cast<std::uint32_t>(graph.outputs()))));
  }
  for (std::int64_t n = 0; n < batch_size; ++n) problem.dropped.push_back(random.next_u64());
  return problem;
}

/// The problem with targets mixed in pairs, as by mixup; an odd last sample stays alone.
[[nodiscard]] inline Problem mixed(Problem problem, std::uint64_t seed) {
  PhiloxStream random(seed, RandomPurpose::augmentation, 0, 0);
  const auto samples = static_cast<std::int32_t>(problem.batch_size);
  problem.mixes.resize(problem.labels.size());
  float weight = 0;
  for (std::int32_t n = 0; n < samples; ++n) {
    if (n % 2 == 0) weight = random.next_float();
    if (n == 2) weight = 0;  // the partner's target alone
    const bool alone = n % 2 == 0 && n + 1 == samples;
    problem.mixes[static_cast<std::size_t>(n)] = {.partner = alone ? n : n ^ 1,
                                                  .weight = alone ? 1.0F : weight};
  }
  return problem;
}

}  // namespace lockstep::oracle
