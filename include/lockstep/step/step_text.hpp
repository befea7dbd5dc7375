#pragma once

#include "lockstep/step/step_graph.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// "forward", "weight gradient", "start of a gather" and so on.
[[nodiscard]] std::string_view kind_name(const StepOp& op);
/// What the op computes, with what is fused: "bn1 + relu_3"; "unit 2" for a collective.
[[nodiscard]] std::string subject_of(const StepOp& op, const Graph& graph);
/// By value: "conv1", "saved bn1", "d conv1"; later values of the same kind and node have a number:
/// "d conv1 (2)".
[[nodiscard]] std::vector<std::string> value_names(const StepGraph& steps, const Graph& graph);
/// A line for each op: "forward bn1 + relu_3: conv1 -> relu_3, saved bn1".
[[nodiscard]] std::string step_text(const StepGraph& steps, const Graph& graph);

}  // namespace lockstep
