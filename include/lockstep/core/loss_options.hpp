#pragma once

#include <array>
#include <string_view>

namespace lockstep {

/// A value of --loss. The op of a graph that computes it has the same `loss_name`.
struct LossOption {
  std::string_view name;
  std::string_view help;
};
/// The first is the default.
inline constexpr std::array loss_options{
    LossOption{"cross-entropy", "softmax cross entropy"},
    LossOption{"bce", "the mean of the classes' binary cross entropies"},
    LossOption{"mse", "the mean of the classes' squared differences between logit and target"}};

}  // namespace lockstep
