#include "lockstep/run/metric_text.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string join(const MetricValues& means, std::string (*text)(double)) {
  std::string joined;
  for (std::size_t i = 0; i < metric_table.size(); ++i) {
    joined += fmt::format("{}{} {}", i == 0 ? "" : ", ", metric_table[i].title, text(means[i]));
  }
  return joined;
}

}  // namespace

std::string percent_text(const MetricValues& means) {
  return join(means, [](double mean) { return fmt::format("{:.2f} %", 100 * mean); });
}

std::string fraction_text(const MetricValues& means) {
  return join(means, [](double mean) { return fmt::format("{:.4f}", mean); });
}

void add_metrics(Json& object, const MetricValues& means, std::size_t count,
                 std::string_view prefix) {
  for (std::size_t i = 0; i < count; ++i) {
    object[fmt::format("{}{}", prefix, metric_table[i].name)] = means[i];
  }
}

}  // namespace lockstep
