#pragma once

#include "lockstep/core/descriptor.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// An IPv4 or IPv6 address with port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
/// Parses "10.1.0.7" or "2001:db8::7"; nullopt if `number` is neither.
[[nodiscard]] std::optional<SocketAddress> parse_address(const std::string& number, int port);
/// The peer's address with `port` as its port; nullopt if the connection has ended.
[[nodiscard]] std::optional<SocketAddress> peer_with_port(int descriptor, int port);
/// Inverse of parse_address. Empty for loopback, link-local IPv6 and non-internet addresses.
[[nodiscard]] std::string address_number(const sockaddr& address);

/// An address at which others may reach this host.
struct InterfaceAddress {
  std::string interface;
  std::string number;
  bool loopback = false;  ///< a loopback interface, although the address is not a loopback address
};
/// Addresses of all interfaces that are up.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// Listens on a free port; never blocks.
class ListeningSocket final {
 public:
  /// Binds to `address` (its port is ignored); nullopt: all interfaces, for IPv6 and IPv4. On
  /// failure throws Error(internal) whose text ends in `suggestion`.
  explicit ListeningSocket(const char* suggestion,
                           const std::optional<SocketAddress>& address = std::nullopt);

  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] int port() const noexcept { return port_; }
  /// Returns a nonblocking connection; empty on failure, or if none is pending, with errno set.
  [[nodiscard]] Descriptor accept() const;

 private:
  Descriptor descriptor_;
  int port_ = 0;
};

}  // namespace lockstep
