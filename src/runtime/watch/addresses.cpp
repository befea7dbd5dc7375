#include "addresses.hpp"

#include "lockstep/runtime/sockets.hpp"

#include <netdb.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace lockstep::watch {
namespace {

constexpr std::size_t most_addresses = 8;

void add(std::vector<std::string>& all, const std::string& address) {
  if (address.empty() || all.size() >= most_addresses || std::ranges::count(all, address) > 0) {
    return;
  }
  all.push_back(address);
}

}  // namespace

std::vector<std::string> own_addresses() {
  std::vector<std::string> of_interfaces;
  for (const InterfaceAddress& each : interface_addresses()) add(of_interfaces, each.number);
  std::vector<std::string> all;
  std::array<char, 256> name{};
  addrinfo* found = nullptr;
  if (::gethostname(name.data(), name.size() - 1) == 0 &&
      ::getaddrinfo(name.data(), nullptr, nullptr, &found) == 0) {
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      const std::string number = address_number(*each->ai_addr);
      // Of a name that means an address of elsewhere nobody would be reached.
      if (std::ranges::count(of_interfaces, number) > 0) add(all, number);
    }
    ::freeaddrinfo(found);
  }
  for (const std::string& address : of_interfaces) add(all, address);
  return all;
}

}  // namespace lockstep::watch
