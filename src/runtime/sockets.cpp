#include "lockstep/runtime/sockets.hpp"

#include "lockstep/core/error.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep {
namespace {

constexpr int backlog = SOMAXCONN;  // as many as the system allows

void set_port(SocketAddress& address, int port) {
  // The port has the same offset in both families.
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  v4.sin_port = htons(static_cast<std::uint16_t>(port));
}

int port_of(const SocketAddress& address) {
  return ntohs(reinterpret_cast<const sockaddr_in&>(address.storage).sin_port);
}

}  // namespace

std::optional<SocketAddress> parse_address(const std::string& number, int port) {
  SocketAddress address;
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
  const auto network_port = htons(static_cast<std::uint16_t>(port));
  if (::inet_pton(AF_INET, number.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = network_port;
    address.size = sizeof v4;
    return address;
  }
  if (::inet_pton(AF_INET6, number.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = network_port;
    address.size = sizeof v6;
    return address;
  }
  return std::nullopt;
}

std::optional<SocketAddress> peer_with_port(int descriptor, int port) {
  SocketAddress address;
  address.size = sizeof address.storage;
  auto* name = reinterpret_cast<sockaddr*>(&address.storage);
  if (::getpeername(descriptor, name, &address.size) != 0) return std::nullopt;
  if (name->sa_family != AF_INET && name->sa_family != AF_INET6) return std::nullopt;
  set_port(address, port);
  return address;
}

std::string address_number(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    if ((ntohl(in.s_addr) >> 24) == 127) return "";
    ::inet_ntop(AF_INET, &in, text.data(), text.size());
  } else if (address.sa_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_LOOPBACK(&in) || IN6_IS_ADDR_LINKLOCAL(&in)) return "";
    ::inet_ntop(AF_INET6, &in, text.data(), text.size());
  }
  return text.data();
}

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
    std::string number = address_number(*each->ifa_addr);
    if (number.empty()) continue;
    addresses.push_back({.interface = each->ifa_name,
                         .number = std::move(number),
                         .loopback = (each->ifa_flags & IFF_LOOPBACK) != 0});
  }
  ::freeifaddrs(list);
  return addresses;
}

ListeningSocket::ListeningSocket(const char* suggestion,
                                 const std::optional<SocketAddress>& asked) {
  // An IPv6 socket accepts IPv4 too; IPv4 is the fallback for hosts without IPv6.
  const std::vector<SocketAddress> choices =
      asked ? std::vector{*asked}
            : std::vector{*parse_address("::", 0), *parse_address("0.0.0.0", 0)};
  const char* call = "socket";
  for (SocketAddress address : choices) {
    set_port(address, 0);
    auto* name = reinterpret_cast<sockaddr*>(&address.storage);
    Descriptor socket(
        ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    const int off = 0;
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    call = "bind";
    if (::bind(socket.get(), name, address.size) != 0) continue;
    call = "listen";
    if (::listen(socket.get(), backlog) != 0) continue;
    if (::getsockname(socket.get(), name, &address.size) != 0) continue;
    port_ = port_of(address);
    descriptor_ = std::move(socket);
    return;
  }
  fail(ExitStatus::internal, "this process cannot listen on a port ({}: {}); {}", call,
       std::strerror(errno), suggestion);
}

Descriptor ListeningSocket::accept() const {
  return Descriptor(::accept4(descriptor_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

}  // namespace lockstep
