#include "addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace lockstep::watch {
namespace {

constexpr std::size_t most_addresses = 8;

/// Empty for loopback, link-local IPv6 and what is no internet address.
std::string as_number(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    if ((ntohl(in.s_addr) >> 24) == 127) return "";
    ::inet_ntop(AF_INET, &in, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LOOPBACK(&in) || IN6_IS_ADDR_LINKLOCAL(&in)) return "";
    ::inet_ntop(AF_INET6, &in, text.data(), text.size());
  }
  return text.data();
}

void add(std::vector<std::string>& all, const std::string& address) {
  if (address.empty() || all.size() >= most_addresses || std::ranges::count(all, address) > 0) {
    return;
  }
  all.push_back(address);
}

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> of_interfaces;
  if (ifaddrs* interfaces = nullptr; ::getifaddrs(&interfaces) == 0) {
    for (const ifaddrs* each = interfaces; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || (each->ifa_flags & IFF_UP) == 0) continue;
      add(of_interfaces, as_number(each->ifa_addr));
    }
    ::freeifaddrs(interfaces);
  }
  std::vector<std::string> all;
  std::array<char, 256> name{};
  addrinfo* found = nullptr;
  if (::gethostname(name.data(), name.size() - 1) == 0 &&
      ::getaddrinfo(name.data(), nullptr, nullptr, &found) == 0) {
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      const std::string number = as_number(each->ai_addr);
      // Of a name that means an address of elsewhere nobody would be reached.
      if (std::ranges::count(of_interfaces, number) > 0) add(all, number);
    }
    ::freeaddrinfo(found);
  }
  for (const std::string& address : of_interfaces) add(all, address);
  return all;
}

std::optional<Address> parse_address(const std::string& number, int port) {
  Address address;
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

}  // namespace lockstep::watch
