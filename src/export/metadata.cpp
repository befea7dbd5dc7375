#include "metadata.hpp"
#include "lockstep/core/json.hpp"

#include <fmt/ranges.h>

namespace lockstep {
namespace {

std::string list(const std::vector<std::string>& names) {
  using nlohmann::json;
  return names.empty() ? std::string()
                       : json(names).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string number(std::optional<std::int64_t> value) {
  return value ? std::to_string(*value) : std::string();
}

}  // namespace

std::string value_list(const std::vector<float>& values) {
  return values.empty() ? std::string() : fmt::format("[{}]", fmt::join(values, ", "));
}

std::vector<std::pair<std::string, std::string>> metadata(const TrainedModel& model) {
  std::vector<std::pair<std::string, std::string>> all{
      {"model", model.graph.name()},
      {"input", fmt::format("[{}]", fmt::join(model.graph.input_shape().extents(), ", "))},
      {"classes", std::to_string(model.graph.outputs())},
      {"step", number(model.step)},
      {"epoch", number(model.epoch)},
      {"weights", model.weights},
      {"mean", value_list(model.mean)},
      {"std", value_list(model.std)},
      {"resize", number(model.resize)},
      {"interpolation", model.interpolation},
      {"class_names", list(model.class_names)}};
  std::erase_if(all, [](const auto& entry) { return entry.second.empty(); });
  return all;
}

}  // namespace lockstep
