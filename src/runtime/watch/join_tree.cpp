#include "join_tree.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/runtime/watch_addresses.hpp"
#include "topology.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <sstream>
#include <utility>
#include <vector>

namespace lockstep::watch {
namespace {

/// A rank's node and endpoint, sent to the others as "node port address address".
struct Introduction {
  int node = 0;
  Endpoint endpoint;

  [[nodiscard]] std::string text() const {
    return fmt::format("{} {} {}", node, endpoint.port, fmt::join(endpoint.addresses, " "));
  }
  static Introduction parse(const std::string& text) {
    std::istringstream stream(text);
    Introduction result;
    stream >> result.node >> result.endpoint.port;
    for (std::string address; stream >> address;) result.endpoint.addresses.push_back(address);
    return result;
  }
};

constexpr const char* loopback = "127.0.0.1";

std::string chosen_address(const std::string& interface, int nodes) {
  const auto chosen = choose_address(interface, all_addresses());
  if (chosen.number == loopback && nodes > 1) {
    fail(ExitStatus::usage,
         "--watchdog-interface {} leads to no other host (the job is on {}); name one that does",
         interface, nodes);
  }
  return chosen.number;
}

/// The address that all of this rank's connections use; nullopt: any.
std::optional<std::string> only_address(const std::string& interface, const ProcessGrid& grid) {
  if (!interface.empty()) return chosen_address(interface, grid.nodes);
  // Only a node's first rank connects to other nodes.
  if (grid.nodes == 1 || grid.local_rank > 0) return loopback;
  return std::nullopt;
}

}  // namespace

JoinedTree join_tree(Communicator& comm, const ProcessGrid& grid, const JoinOptions& options) {
  JoinedTree joined{
      .options = {.rank = comm.rank(), .size = comm.size()}, .deciders = {}, .listener = {}};
  TreeOptions& tree = joined.options;
  Introduction mine{.node = grid.node, .endpoint = {}};
  collectively(comm, [&] {
    if (tree.rank == 0) tree.secret = random_bytes();
    if (const auto only = only_address(options.interface, grid)) {
      mine.endpoint.addresses = {*only};
      tree.address = parse_address(*only, 0);
    } else {
      mine.endpoint.addresses = own_addresses();
    }
    if (tree.size == 1) return;
    joined.listener.emplace(tree.address);
    mine.endpoint.port = joined.listener->port();
  });
  comm.broadcast(std::span<unsigned char>(tree.secret));
  std::vector<Introduction> all;
  std::vector<int> nodes;
  for (const std::string& text : all_gather_text(comm, mine.text())) {
    all.push_back(Introduction::parse(text));
    nodes.push_back(all.back().node);
  }
  tree.parents = tree_parents(nodes, options.fan_out);
  joined.deciders = deciders(nodes, tree.parents);
  for (const int child : children_of(tree.rank, tree.parents)) {
    tree.child_ports.emplace(child, all[static_cast<std::size_t>(child)].endpoint.port);
  }
  if (tree.rank == 0) return joined;
  const Introduction& parent =
      all[static_cast<std::size_t>(tree.parents[static_cast<std::size_t>(tree.rank)])];
  tree.parent = parent.endpoint;
  if (parent.node == grid.node && options.interface.empty()) tree.parent.addresses = {loopback};
  return joined;
}

}  // namespace lockstep::watch
