#pragma once

#include "lockstep/runtime/sockets.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep::watch {

/// This host's addresses as numbers; those that its name resolves to come first. Omits loopback and
/// the bridges of containers and virtual machines, unless there are no others.
[[nodiscard]] std::vector<std::string> own_addresses();
/// Pure. The addresses of a host that others should try.
[[nodiscard]] std::vector<InterfaceAddress> reachable_addresses(
    std::span<const InterfaceAddress> all);

/// Pure. The first match of `asked`, a comma-separated list of interface names and networks such as
/// "10.1.0.0/16"; prefers IPv4 to IPv6. If none matches, throws Error(usage) that lists `all`.
[[nodiscard]] InterfaceAddress choose_address(const std::string& asked,
                                              std::span<const InterfaceAddress> all);
/// All addresses of this host, including loopback.
[[nodiscard]] std::vector<InterfaceAddress> all_addresses();

}  // namespace lockstep::watch
