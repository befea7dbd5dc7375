#include "lockstep/train/normalization.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/pixel_statistics.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace lockstep {
namespace {

/// Larger differences are not due to rounding or the order of a sum.
constexpr float tolerance = 1e-4F;
/// Parts of a standard deviation by which data sets of photographs differ.
constexpr float usual_difference = 0.1F;

void require_usable(const WeightsNormalization& weights) {
  std::string fault = fault_in_statistic("mean", weights.mean);
  if (fault.empty()) fault = fault_in_statistic("std", weights.std);
  if (!fault.empty()) fail(ExitStatus::bad_input, "{}: attribute {}", weights.file, fault);
}

/// A single value applies to all channels.
bool fits(const std::vector<float>& values, std::size_t channels) {
  return values.size() == 1 || values.size() == channels;
}
float of_channel(const std::vector<float>& values, std::size_t channel) {
  return values[values.size() == 1 ? 0 : channel];
}

/// By more than the usual parts of `scale`; empty: at all.
bool differ(const std::vector<float>& left, const std::vector<float>& right,
            const std::vector<float>& scale = {}) {
  const std::size_t size = std::max({left.size(), right.size(), scale.size()});
  if (!fits(left, size) || !fits(right, size) || !(scale.empty() || fits(scale, size))) return true;
  for (std::size_t i = 0; i < size; ++i) {
    const float limit = scale.empty() ? tolerance : usual_difference * of_channel(scale, i);
    if (std::abs(of_channel(left, i) - of_channel(right, i)) > limit) return true;
  }
  return false;
}

std::string text(const std::vector<float>& mean, const std::vector<float>& std) {
  return fmt::format("mean [{:.4g}], std [{:.4g}]", fmt::join(mean, ", "), fmt::join(std, ", "));
}

/// "[1.2, 1.3]", or "1.2" if all are equal to four digits.
std::string text(const std::vector<float>& values) {
  std::vector<std::string> digits;
  digits.reserve(values.size());
  for (const float value : values) digits.push_back(fmt::format("{:.4g}", value));
  const bool equal = std::ranges::count(digits, digits.front()) == std::ssize(digits);
  return equal ? digits.front() : fmt::format("[{}]", fmt::join(digits, ", "));
}

}  // namespace

std::string normalization_change(const WeightsNormalization& weights, const Config& given) {
  const std::vector<float> mean(given.mean.begin(), given.mean.end());
  const std::vector<float> std(given.std.begin(), given.std.end());
  const std::size_t channels =
      std::max({mean.size(), std.size(), weights.mean.size(), weights.std.size()});
  for (const std::vector<float>* values : {&mean, &std, &weights.mean, &weights.std}) {
    if (!fits(*values, channels)) return {};
  }
  if (!differ(mean, weights.mean) && !differ(std, weights.std)) return {};
  std::vector<float> scale;
  std::vector<float> shift;
  scale.reserve(channels);
  shift.reserve(channels);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const float divisor = of_channel(std, channel);
    scale.push_back(of_channel(weights.std, channel) / divisor);
    shift.push_back((of_channel(weights.mean, channel) - of_channel(mean, channel)) / divisor);
  }
  return fmt::format(
      "{} was trained with {}, but --mean and --std give {} (normalised inputs are multiplied by "
      "{} and shifted by {}, so its results differ); drop the options to normalise as in its "
      "training",
      weights.file, text(weights.mean, weights.std), text(mean, std), text(scale), text(shift));
}

WeightsNormalization broadcast_normalization(const CheckpointInfo& info, const std::string& file,
                                             Communicator& comm) {
  WeightsNormalization weights{.file = file, .mean = info.mean, .std = info.std};
  for (std::vector<float>* values : {&weights.mean, &weights.std}) {
    auto size = static_cast<std::int64_t>(values->size());
    comm.broadcast(std::span<std::int64_t>(&size, 1));
    values->resize(static_cast<std::size_t>(size));
    if (size > 0) comm.broadcast(std::span<float>(*values));
  }
  require_usable(weights);
  return weights;
}

std::string normalize_as_trained(const WeightsNormalization& weights, const DatasetInfo& data,
                                 Config& config) {
  const bool takes_mean = config.mean.empty();
  const bool takes_std = config.std.empty();
  if (takes_mean) config.mean.assign(weights.mean.begin(), weights.mean.end());
  if (takes_std) config.std.assign(weights.std.begin(), weights.std.end());
  if ((takes_mean && weights.mean.empty()) || (takes_std && weights.std.empty())) {
    return fmt::format(
        "{} does not say what its inputs were normalised with; the data set's {} are used (--mean "
        "and --std name others, as ImageNet's for torchvision's weights)",
        weights.file, text(data.mean, data.std));
  }
  if (!takes_mean || !takes_std) {
    std::string warning = normalization_change(weights, config);
    if (!warning.empty()) return warning;
  }
  const std::vector<float>& scale = weights.std;
  const bool mean_differs =
      takes_mean && data.states_mean && differ(weights.mean, data.mean, scale);
  const bool std_differs = takes_std && data.states_std && differ(weights.std, data.std, scale);
  if (!mean_differs && !std_differs) return {};
  return fmt::format(
      "{} was trained with {}, but split {} of {} has {}; the weights' are used (--mean and --std "
      "name others)",
      weights.file, text(weights.mean, weights.std), data.split, data.directory,
      text(data.mean, data.std));
}

NormalizedPlan normalized_plan(const Config& config, const RunStart& start, const DatasetInfo& data,
                               Communicator& comm) {
  Config chosen = config;
  std::string warning;
  if (start.state) {
    const Config before = parse_config_text(start.state->config);
    if (chosen.mean.empty()) chosen.mean = before.mean;
    if (chosen.std.empty()) chosen.std = before.std;
  } else if (!config.init_from.empty()) {
    const CheckpointInfo info = start.reader ? start.reader->info() : CheckpointInfo();
    warning =
        normalize_as_trained(broadcast_normalization(info, config.init_from, comm), data, chosen);
  }
  return {.plan = resolve_run(chosen, data, comm.size()), .warning = std::move(warning)};
}

}  // namespace lockstep
