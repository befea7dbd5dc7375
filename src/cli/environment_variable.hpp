#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace lockstep::cli {

[[nodiscard]] inline std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace lockstep::cli
