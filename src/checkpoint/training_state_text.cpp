#include "lockstep/checkpoint/training_state_text.hpp"

#include "checkpoint_format.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"

namespace lockstep {

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
