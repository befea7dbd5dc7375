#include "lockstep/graph/summary.hpp"
#include "lockstep/core/json.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep {
ModelSummary summarize_model(const Graph& graph) {
  ModelSummary summary{.name = graph.name(), .rows = {}};
  for (const Node& node : graph.nodes()) {
    ModelRow row{
        .name = layer_name(node.op), .op = std::string(op_name(node.op)), .output = node.output};
    for (const ParameterId id : node.parameters) {
      row.parameters += graph.parameters()[static_cast<std::size_t>(id)].shape.elements();
    }
    row.multiply_adds = node.multiply_adds;
    row.activation_bytes = node.output.elements() * static_cast<std::int64_t>(sizeof(float));
    summary.parameters += row.parameters;
    summary.multiply_adds += row.multiply_adds;
    summary.activation_bytes += row.activation_bytes;
    summary.rows.push_back(std::move(row));
  }
  return summary;
}

std::string format_summary(const ModelSummary& summary) {
  std::size_t width = 5;
  for (const ModelRow& row : summary.rows) width = std::max(width, row.name.size());
  std::string text = fmt::format("{:<{}}  {:<21}  {:>12}  {:>12}  {:>15}  {:>12}\n", "layer", width,
                                 "op", "output", "parameters", "multiply-adds", "memory, KiB");
  const auto kib = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1024; };
  for (const ModelRow& row : summary.rows) {
    text += fmt::format("{:<{}}  {:<21}  {:>12}  {:>12}  {:>15}  {:>12.1f}\n", row.name, width,
                        row.op, to_string(row.output), row.parameters, row.multiply_adds,
                        kib(row.activation_bytes));
  }
  text += fmt::format("{:<{}}  {:<21}  {:>12}  {:>12}  {:>15}  {:>12.1f}\n", "total", width,
                      summary.name, "per image", summary.parameters, summary.multiply_adds,
                      kib(summary.activation_bytes));
  return text;
}

nlohmann::json summary_json(const ModelSummary& summary) {
  nlohmann::json layers = nlohmann::json::array();
  for (const ModelRow& row : summary.rows) {
    layers.push_back({{"name", row.name},
                      {"op", row.op},
                      {"output", row.output.extents()},
                      {"parameters", row.parameters},
                      {"multiply_adds", row.multiply_adds},
                      {"activation_bytes", row.activation_bytes}});
  }
  return {{"model", summary.name},
          {"layers", std::move(layers)},
          {"parameters", summary.parameters},
          {"multiply_adds", summary.multiply_adds},
          {"activation_bytes", summary.activation_bytes}};
}

}  // namespace lockstep
