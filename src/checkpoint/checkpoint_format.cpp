#include "checkpoint_format.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

namespace lockstep::checkpoint_format {

std::uint32_t state_checksum(const TrainingState& state) {
  std::vector<std::string> lines;
  visit_fields(state, [&lines](const char* name, const auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, std::optional<std::string>>) {
      if (value) lines.push_back(fmt::format("{}={}\n", name, *value));
    } else if constexpr (std::is_floating_point_v<T>) {
      lines.push_back(fmt::format("{}={:.17g}\n", name, value));
    } else {
      lines.push_back(fmt::format("{}={}\n", name, value));
    }
  });
  std::ranges::sort(lines);
  std::uint32_t checksum_so_far = 0;
  for (const std::string& line : lines) checksum_so_far = crc32c(line, checksum_so_far);
  return checksum_so_far;
}

std::uint32_t values_checksum(std::span<const float> values) noexcept {
  return crc32c(std::as_bytes(values));
}

}  // namespace lockstep::checkpoint_format

namespace lockstep {

std::string slot_group(const std::string& slot) {
  return std::string(checkpoint_format::optimizer_group) + "/" + slot;
}

std::string training_state_text(const TrainingState& state) {
  Json text;
  checkpoint_format::visit_fields(state, [&](const char* name, const auto& field) {
    if constexpr (requires { field.has_value(); }) {
      if (field) text[name] = *field;
    } else {
      text[name] = field;
    }
  });
  // CBOR, not JSON: paths may contain any bytes, and sums may be infinite.
  std::string bytes;
  Json::to_cbor(text, bytes);
  return bytes;
}

TrainingState parse_training_state(const std::string& text) {
  try {
    const auto json = Json::from_cbor(text);
    TrainingState state;
    checkpoint_format::visit_fields(state, [&](const char* name, auto& field) {
      if constexpr (requires { field.has_value(); }) {
        if (json.contains(name)) field = json.at(name).get<std::string>();
      } else {
        json.at(name).get_to(field);
      }
    });
    return state;
  } catch (const nlohmann::json::exception& error) {
    fail(ExitStatus::internal, "the training state does not parse ({}); this is a bug",
         error.what());
  }
}

}  // namespace lockstep
