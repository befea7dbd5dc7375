#pragma once

#include "lockstep/config/config.hpp"

#include <set>
#include <string>
#include <vector>

namespace lockstep {

/// Holds if the option has one of the values; without values, if it is on (not 0, none, false or
/// empty).
struct OptionCondition {
  std::string option;
  std::vector<std::string> values = {};
};

/// Options that have an effect only if one of the conditions holds.
struct ConditionalOptions {
  std::vector<std::string> options;
  std::vector<OptionCondition> conditions;
  bool even_defaults = true;  ///< giving a default without effect is an error, too
};
/// All of train's.
[[nodiscard]] const std::vector<ConditionalOptions>& conditional_options();

/// Error(usage), with both values, if an option without effect differs from its default, or is one
/// of `given`.
void require_effects(const Config& config, const std::set<std::string>& given);

}  // namespace lockstep
