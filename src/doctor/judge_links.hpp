#pragma once

#include "lockstep/doctor/facts.hpp"

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::doctor {

struct LinksFinding {
  std::string text;
  std::vector<std::pair<std::string, double>> values;
  std::vector<const NodePairFacts*> pairs;  ///< whose figures it rests on
};
/// Names nodes that are slow or lose packets in all of their pairs; nullopt if there are none. The
/// pairs must have no errors.
[[nodiscard]] std::optional<LinksFinding> judge_links(std::span<const std::string> nodes,
                                                      std::span<const NodePairFacts> pairs);

[[nodiscard]] bool is_lossy(const NodePairFacts& pair);

}  // namespace lockstep::doctor
