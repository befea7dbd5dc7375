#pragma once

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>

namespace lockstep {

[[nodiscard]] inline std::optional<std::string> environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// environment_variable, or a test's own variables.
using VariableLookup = std::function<std::optional<std::string>(const char*)>;

}  // namespace lockstep
