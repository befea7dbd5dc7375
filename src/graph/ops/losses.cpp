#include "lockstep/core/error.hpp"
#include "lockstep/core/loss_options.hpp"
#include "lockstep/graph/ops.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <vector>

namespace lockstep {
namespace {

OpDefinition define_loss(const OpInputs& in, const LossSettings& settings) {
  if (in.shapes[0].rank() != 1) {
    fail(ExitStatus::usage, "{}: the loss gets logits {} (they must be flat)", in.graph,
         in.names[0]);
  }
  if (!(settings.label_smoothing >= 0 && settings.label_smoothing < 1)) {
    fail(ExitStatus::usage, "{}: label smoothing {} (it must be at least 0 and below 1)", in.graph,
         settings.label_smoothing);
  }
  if (!(settings.target_threshold >= 0 && settings.target_threshold < 1)) {
    fail(ExitStatus::usage, "{}: target threshold {} (it must be at least 0 and below 1)", in.graph,
         settings.target_threshold);
  }
  return {.output = {}};
}

/// Calls `visit` with an op of each type that is a loss.
template <typename Visit, typename... Ops>
constexpr void for_each_loss(const Visit& visit, const std::variant<Ops...>*) {
  const auto visit_loss = [&]<typename Each>(const Each*) {
    if constexpr (LossOp<Each>) visit(Each{});
  };
  (visit_loss(static_cast<const Ops*>(nullptr)), ...);
}
constexpr const Op* all_ops = nullptr;

/// Number of loss ops with this name.
constexpr int count_losses(std::string_view name) {
  int count = 0;
  for_each_loss([&]<typename Loss>(const Loss&) { count += Loss::loss_name == name ? 1 : 0; },
                all_ops);
  return count;
}
constexpr std::size_t count_losses() {
  std::size_t count = 0;
  for_each_loss([&]<typename Loss>(const Loss&) { ++count; }, all_ops);
  return count;
}
static_assert(std::ranges::all_of(loss_options,
                                  [](const LossOption& loss) {
                                    return count_losses(loss.name) == 1;
                                  }) &&
                  count_losses() == loss_options.size(),
              "each LossOption has one op");

}  // namespace

Op make_loss(std::string_view name, ValueId logits, const LossSettings& settings) {
  std::optional<Op> made;
  for_each_loss(
      [&]<typename Loss>(Loss loss) {
        if (Loss::loss_name != name) return;
        loss.input = logits;
        loss.options.label_smoothing = settings.label_smoothing;
        if constexpr (requires { loss.options.target_threshold; }) {
          loss.options.target_threshold = settings.target_threshold;
        }
        made = loss;
      },
      all_ops);
  if (made) return *made;
  std::vector<std::string_view> known;
  known.reserve(loss_options.size());
  for (const LossOption& loss : loss_options) known.push_back(loss.name);
  fail(ExitStatus::usage, "the loss is '{}' (there is no such loss); use one of {}", name,
       fmt::join(known, ", "));
}

LossSettings loss_settings(const Op& op) noexcept {
  return std::visit(
      []<typename Each>(const Each& each) -> LossSettings {
        if constexpr (LossOp<Each>) return settings_of(each);
        return {};
      },
      op);
}

std::string_view loss_name(const Op& op) noexcept {
  return std::visit(
      []<typename Each>(const Each&) -> std::string_view {
        if constexpr (LossOp<Each>) return Each::loss_name;
        return {};
      },
      op);
}

OpDefinition SoftmaxCrossEntropy::define(const OpInputs& in) const {
  return define_loss(in, settings_of(*this));
}

OpDefinition BinaryCrossEntropy::define(const OpInputs& in) const {
  return define_loss(in, settings_of(*this));
}

OpDefinition MeanSquaredError::define(const OpInputs& in) const {
  return define_loss(in, settings_of(*this));
}

}  // namespace lockstep
