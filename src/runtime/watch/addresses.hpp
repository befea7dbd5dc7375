#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::watch {

/// A socket address of IPv4 or IPv6.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

/// This host's addresses as numbers, the one that its own name means first; without loopback.
[[nodiscard]] std::vector<std::string> own_addresses();
[[nodiscard]] std::optional<Address> parse_address(const std::string& number, int port);

}  // namespace lockstep::watch
