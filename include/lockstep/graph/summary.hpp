#pragma once

#include "lockstep/graph/graph.hpp"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

/// One op of a network; counts are per image.
struct ModelRow {
  std::string name;  ///< the layer's, or the op's if it has none
  std::string op;
  Shape output;
  std::int64_t parameters = 0;
  std::int64_t multiply_adds = 0;     ///< of products of matrices
  std::int64_t activation_bytes = 0;  ///< fp32 output
};

struct ModelSummary {
  std::string name;
  std::vector<ModelRow> rows;
  std::int64_t parameters = 0;
  std::int64_t multiply_adds = 0;
  std::int64_t activation_bytes = 0;
};

[[nodiscard]] ModelSummary summarize_model(const Graph& graph);

/// An aligned table with a line of totals.
[[nodiscard]] std::string format_summary(const ModelSummary& summary);

/// `model parameters multiply_adds activation_bytes`, and `layers` with the same counts of each op
/// plus its `name`, `op` and `output` extents.
[[nodiscard]] nlohmann::json summary_json(const ModelSummary& summary);

}  // namespace lockstep
