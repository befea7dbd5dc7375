#include "lockstep/core/run_holder.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep {

RunHolder parse_run_holder(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  RunHolder holder;
  if (!json.is_object()) return holder;  // torn write
  try {
    holder.job = json.value("job", holder.job);
    holder.host = json.value("host", holder.host);
    holder.boot = json.value("boot", holder.boot);
    holder.process = json.value("process", holder.process);
    holder.started = json.value("started", holder.started);
    holder.token = json.value("token", holder.token);
  } catch (const nlohmann::json::exception&) {
    // The file was edited; the fields read so far suffice.
  }
  return holder;
}

std::string name_of(const RunHolder& holder) {
  return fmt::format("{} on {}", holder.job, holder.host);
}

}  // namespace lockstep
