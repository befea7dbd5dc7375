#include "lockstep/core/descriptor.hpp"
#include "lockstep/runtime/launch.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

/// Address of "NAMESPACE.0;tcp4://127.0.0.1:40001"; nullopt for other forms.
std::optional<sockaddr_in> address_in(std::string_view uri) {
  constexpr std::string_view scheme = ";tcp4://";
  const std::size_t begin = uri.find(scheme);
  if (begin == std::string_view::npos) return std::nullopt;
  uri.remove_prefix(begin + scheme.size());
  const std::size_t colon = uri.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string host(uri.substr(0, colon));
  const std::string_view port = uri.substr(colon + 1);
  std::uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(number);
  if (error != std::errc() || ::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return std::nullopt;
  }
  return address;
}

/// Whether this node refuses connections to the address. A server would take one for a client that
/// says nothing, so the port is bound instead: a listening server holds it.
bool is_free(const sockaddr_in& address) {
  const Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return false;
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

}  // namespace

std::string ended_launcher(std::span<const char* const> variables) {
  constexpr std::string_view beginning = "PMIX_SERVER_URI";
  std::string ended;
  for (const char* const variable : variables) {
    const std::string_view text(variable);
    if (!text.starts_with(beginning)) continue;
    const auto address = address_in(text);
    if (!address || !is_free(*address)) return {};
    ended = text;
  }
  return ended;
}

}  // namespace lockstep
