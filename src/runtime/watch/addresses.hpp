#pragma once

#include "lockstep/runtime/sockets.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep::watch {

/// This host's addresses as numbers, the one that its own name means first; without loopback, and
/// without the bridges of containers and virtual machines where there is another.
[[nodiscard]] std::vector<std::string> own_addresses();
/// Pure: which of a host's addresses others should try.
[[nodiscard]] std::vector<InterfaceAddress> reachable_addresses(
    std::span<const InterfaceAddress> all);

/// Pure. The first address that one of `asked` means: names of interfaces and networks as
/// "10.1.0.0/16", with commas between. IPv4 comes before IPv6. Error(usage) names what there is.
[[nodiscard]] InterfaceAddress choose_address(const std::string& asked,
                                              std::span<const InterfaceAddress> all);
/// All of this host, with loopback.
[[nodiscard]] std::vector<InterfaceAddress> all_addresses();

}  // namespace lockstep::watch
