#pragma once

#include "lockstep/doctor/facts.hpp"

#include <nlohmann/json.hpp>

#include <string>

/// JSON conversion of the facts that are sent to rank 0.
namespace lockstep::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, rank, node, cores, node_cores, gpu_usable,
                                   gpus_allotted, gpus, gpu_reason, gpu_pairs, gpu_pairs_reaching,
                                   gpus_apart)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RouteFacts, interface, address, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DataFacts, node, shards, bytes, seconds, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SharedDirectoryFacts, node, sees_file, can_write, got_lock,
                                   error)

/// Replaces invalid UTF-8, since error texts may contain arbitrary bytes of a path.
[[nodiscard]] inline std::string to_text(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace lockstep::doctor
