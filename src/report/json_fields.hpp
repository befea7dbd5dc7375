#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/report/curve.hpp"

#include <cmath>
#include <cstdint>
#include <string>

namespace lockstep::report {

/// NaN becomes null; whole numbers are shorter without a fraction.
[[nodiscard]] inline Json json_of(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::trunc(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return value;
}

/// NaN if the field is absent or no number.
[[nodiscard]] inline double number(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : unknown;
}

/// Empty if the field is absent or no text.
[[nodiscard]] inline std::string text(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace lockstep::report
