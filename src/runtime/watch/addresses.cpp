#include "lockstep/runtime/watch_addresses.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/parse_number.hpp"

#include <netdb.h>

#include <algorithm>
#include <array>
#include <climits>
#include <functional>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>

namespace lockstep::watch {
namespace {

constexpr std::size_t most_addresses = 8;
/// Bridge interfaces, which have the same address on every host.
constexpr std::array<std::string_view, 2> bridges{"docker", "virbr"};

void add(std::vector<std::string>& all, const std::string& address) {
  if (address.empty() || all.size() >= most_addresses || std::ranges::count(all, address) > 0) {
    return;
  }
  all.push_back(address);
}

/// In network order; empty if `address` is nullopt.
std::string_view bytes_in(const std::optional<SocketAddress>& address) {
  if (!address) return {};
  if (address->storage.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(address->storage).sin_addr;
    return {reinterpret_cast<const char*>(&in), sizeof in};
  }
  const auto& in = reinterpret_cast<const sockaddr_in6&>(address->storage).sin6_addr;
  return {reinterpret_cast<const char*>(&in), sizeof in};
}

/// "10.1.0.0/16"
class Network final {
 public:
  explicit Network(const std::string& text)
      : address_(parse_address(text.substr(0, text.find('/')), 0)) {
    const std::string_view digits = std::string_view(text).substr(text.find('/') + 1);
    bits_ = parse_number<int>(digits).value_or(-1);
    const auto most = static_cast<int>(bytes_in(address_).size()) * CHAR_BIT;
    if (!address_ || bits_ < 0 || bits_ > most) {
      fail(ExitStatus::usage,
           "--watchdog-interface {} is no network (an address and the number of its first bits "
           "that count are wanted); give one as 10.1.0.0/16, or an interface's name",
           text);
    }
  }
  [[nodiscard]] bool holds(const std::string& number) const {
    const auto other = parse_address(number, 0);
    const std::string_view mine = bytes_in(address_);
    const std::string_view theirs = bytes_in(other);
    if (mine.size() != theirs.size()) return false;
    for (int bit = 0; bit < bits_; ++bit) {
      const auto byte = static_cast<std::size_t>(bit / CHAR_BIT);
      const int mask = 0x80 >> (bit % CHAR_BIT);
      if ((mine[byte] & mask) != (theirs[byte] & mask)) return false;
    }
    return true;
  }

 private:
  std::optional<SocketAddress> address_;
  int bits_ = -1;
};

std::string listed(std::span<const InterfaceAddress> all) {
  std::string text;
  for (const InterfaceAddress& each : all) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", each.interface, each.number);
  }
  return text;
}

}  // namespace

std::vector<InterfaceAddress> reachable_addresses(std::span<const InterfaceAddress> all) {
  const auto of_no_use = [](const InterfaceAddress& each) {
    return each.loopback || std::ranges::any_of(bridges, [&](std::string_view bridge) {
             return each.interface.starts_with(bridge);
           });
  };
  std::vector<InterfaceAddress> found;
  std::ranges::copy_if(all, std::back_inserter(found), std::not_fn(of_no_use));
  if (found.empty()) found.assign(all.begin(), all.end());
  return found;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> of_interfaces;
  for (const InterfaceAddress& each : reachable_addresses(interface_addresses())) {
    of_interfaces.push_back(each.number);
  }
  std::vector<std::string> all;
  const std::string name = host_name();
  addrinfo* found = nullptr;
  if (!name.empty() && ::getaddrinfo(name.c_str(), nullptr, nullptr, &found) == 0) {
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      const std::string number = address_number(*each->ai_addr);
      // Skips addresses of the name that this host does not have: they are unreachable.
      if (std::ranges::count(of_interfaces, number) > 0) add(all, number);
    }
    ::freeaddrinfo(found);
  }
  for (const std::string& address : of_interfaces) add(all, address);
  return all;
}

std::vector<InterfaceAddress> all_addresses() {
  std::vector<InterfaceAddress> all = interface_addresses();
  all.push_back({.interface = "lo", .number = "127.0.0.1", .loopback = true});
  return all;
}

InterfaceAddress choose_address(const std::string& asked, std::span<const InterfaceAddress> all) {
  std::istringstream list(asked);
  for (std::string each; std::getline(list, each, ',');) {
    const auto network = each.find('/') == std::string::npos ? std::optional<Network>()
                                                             : std::optional<Network>(each);
    const InterfaceAddress* chosen = nullptr;
    for (const InterfaceAddress& address : all) {
      if (network ? !network->holds(address.number) : address.interface != each) continue;
      const bool is_v4 = address.number.find(':') == std::string::npos;
      if (chosen == nullptr || (is_v4 && chosen->number.find(':') != std::string::npos)) {
        chosen = &address;
      }
    }
    if (chosen != nullptr) return *chosen;
  }
  fail(ExitStatus::usage,
       "--watchdog-interface {} is not on this host (it has {}); name one of these, or a network "
       "as 10.1.0.0/16",
       asked, listed(all));
}

}  // namespace lockstep::watch
