#include "lockstep/core/run_holder.hpp"
#include "lockstep/core/json.hpp"

#include <fmt/format.h>

namespace lockstep {

RunHolder parse_run_holder(std::string_view text) {
  const Json json = parse_json(text).value_or(Json());
  RunHolder holder;
  if (!json.is_object()) return holder;  // torn write
  try {
    holder.job = json.value("job", holder.job);
    holder.host = json.value("host", holder.host);
    holder.boot = json.value("boot", holder.boot);
    if (const auto process = json.find("process"); process != json.end()) {
      holder.process = process->get_ref<const Json::number_integer_t&>();  // a double may not fit
    }
    holder.started = json.value("started", holder.started);
    holder.token = json.value("token", holder.token);
  } catch (const Json::exception&) {
    // The file was edited; the fields read so far suffice.
  }
  return holder;
}

std::string name_of(const RunHolder& holder) {
  return fmt::format("{} on {}", holder.job, holder.host);
}

}  // namespace lockstep
