#pragma once

#include "lockstep/core/descriptor.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Of IPv4 or IPv6.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};
/// `number` is "10.1.0.7" or "2001:db8::7"; nothing where it is neither.
[[nodiscard]] std::optional<SocketAddress> parse_address(const std::string& number, int port);
/// The other end's address, with another port; nothing where the connection has ended.
[[nodiscard]] std::optional<SocketAddress> peer_with_port(int descriptor, int port);
/// Inverse of parse_address. Empty for loopback, link-local IPv6 and what is no internet address.
[[nodiscard]] std::string address_number(const sockaddr& address);

/// An address by which others may reach this host.
struct InterfaceAddress {
  std::string interface;
  std::string number;
  bool loopback = false;  ///< the interface is, though the address is not
};
/// Of all interfaces that are up.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// Listens on a free port; never blocks.
class ListeningSocket final {
 public:
  /// On `address` (its port is ignored); null: on all interfaces, for IPv6 and IPv4.
  /// Error(internal) that ends in `suggestion`.
  explicit ListeningSocket(const char* suggestion,
                           const std::optional<SocketAddress>& address = std::nullopt);

  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] int port() const noexcept { return port_; }
  /// Of a connection, which does not block either; empty where there is none, with errno.
  [[nodiscard]] Descriptor accept() const;

 private:
  Descriptor descriptor_;
  int port_ = 0;
};

}  // namespace lockstep
