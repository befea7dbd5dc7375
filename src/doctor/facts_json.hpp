#pragma once

#include "lockstep/core/json.hpp"
#include "measure.hpp"

#include <span>
#include <string>

/// JSON messages, and the conversion of the facts in them.
namespace lockstep {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(InterfaceAddress, interface, number)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuPlace, bus_id, near_cores, has_far_cores, nic, nics)
}  // namespace lockstep
namespace lockstep::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, rank, node, cores, node_cores, gpu_usable,
                                   gpus_allotted, gpus, gpu_reason, gpu_pairs, gpu_pairs_reaching,
                                   gpus_apart, gpu_places, interface_error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SegmentFacts, sent, retransmitted)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RouteFacts, interface, address, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RouteTarget, addresses, port, greeting)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Passage, latency, bandwidth, segments, error, routes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ReadFacts, bytes, seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DataFacts, node, shards, reads, error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SharedDirectoryFacts, node, sees_file, can_write, got_lock,
                                   error)

/// Replaces invalid UTF-8, since error texts may contain arbitrary bytes of a path.
inline void send_json(Mailbox& mailbox, int to, int tag, const nlohmann::json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  mailbox.send(to, tag, std::as_bytes(std::span(text)));
}
[[nodiscard]] inline nlohmann::json json_in(const Mailbox::Received& received) {
  const auto* text = reinterpret_cast<const char*>(received.bytes.data());
  return require_json({text, received.bytes.size()}, "a message of another rank", "this is a bug",
                      trusted_json);
}

}  // namespace lockstep::doctor
