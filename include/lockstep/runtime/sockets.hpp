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
/// The inverse. Empty for loopback, link-local IPv6 and what is no internet address.
[[nodiscard]] std::string address_number(const sockaddr& address);

/// An address by which others may reach this host.
struct InterfaceAddress {
  std::string interface;
  std::string number;
  bool loopback = false;  ///< the interface is, though the address is not
};
/// Of all interfaces that are up.
[[nodiscard]] std::vector<InterfaceAddress> interface_addresses();

/// Listens on a free port of all interfaces, for IPv6 and IPv4; never blocks.
class ListeningSocket final {
 public:
  /// Error(internal) that ends in `suggestion`.
  explicit ListeningSocket(const char* suggestion);

  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  [[nodiscard]] int port() const noexcept { return port_; }
  /// Of a connection, which does not block either; empty where there is none.
  [[nodiscard]] Descriptor accept() const;

 private:
  Descriptor descriptor_;
  int port_ = 0;
};

}  // namespace lockstep
