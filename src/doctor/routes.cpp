#include "routes.hpp"

#include "lockstep/core/error.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>

namespace lockstep::doctor {
namespace {

/// How long a listener may overlook the wish to stop.
constexpr int listener_nap_ms = 50;

/// The socket's address as text; empty for families that are no network's.
std::string address_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&six)) return {};
    bytes = &six;
  } else {
    return {};
  }
  return ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) != nullptr ? text.data()
                                                                                     : "";
}

struct AddressListTraits {
  using Handle = addrinfo*;
  static Handle null() noexcept { return nullptr; }
  static void destroy(Handle handle) noexcept { ::freeaddrinfo(handle); }
};

/// Waits until the descriptor has what is asked for; false at the limit.
bool ready(const Descriptor& descriptor, short events, std::chrono::milliseconds limit) {
  pollfd waiting{.fd = descriptor.get(), .events = events, .revents = 0};
  return ::poll(&waiting, 1, static_cast<int>(limit.count())) == 1;
}

std::string connect_and_read(const RouteOptions& options, const addrinfo& target,
                             std::string& error) {
  const Descriptor descriptor(
      ::socket(target.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!descriptor) {
    error = std::strerror(errno);
    return {};
  }
  if (::connect(descriptor.get(), target.ai_addr, target.ai_addrlen) != 0 && errno != EINPROGRESS) {
    error = std::strerror(errno);
    return {};
  }
  if (!ready(descriptor, POLLOUT, options.limit)) {
    error = "no answer";
    return {};
  }
  int fault = 0;
  socklen_t size = sizeof fault;
  ::getsockopt(descriptor.get(), SOL_SOCKET, SO_ERROR, &fault, &size);
  if (fault != 0) {
    error = std::strerror(fault);
    return {};
  }
  std::string answer;
  std::array<char, 256> piece{};
  while (ready(descriptor, POLLIN, options.limit)) {
    const ssize_t count = ::read(descriptor.get(), piece.data(), piece.size());
    if (count <= 0) break;
    answer.append(piece.data(), static_cast<std::size_t>(count));
  }
  return answer;
}

}  // namespace

std::vector<Address> own_addresses() {
  std::vector<Address> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const bool usable = (entry->ifa_flags & IFF_UP) != 0 && (entry->ifa_flags & IFF_LOOPBACK) == 0;
    if (!usable || entry->ifa_addr == nullptr) continue;
    std::string text = address_text(entry->ifa_addr);
    if (!text.empty()) addresses.push_back({.interface = entry->ifa_name, .text = std::move(text)});
  }
  return addresses;
}

Listener::Listener(std::string greeting)
    : greeting_(std::move(greeting)),
      socket_(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  const sockaddr* address = reinterpret_cast<const sockaddr*>(&any);
  socklen_t size = sizeof any;
  if (socket_) {
    const int off = 0;
    ::setsockopt(socket_.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  } else {
    // A kernel without IPv6.
    socket_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    address = reinterpret_cast<const sockaddr*>(&any4);
    size = sizeof any4;
  }
  sockaddr_in6 bound{};
  socklen_t bound_size = sizeof bound;
  if (!socket_ || ::bind(socket_.get(), address, size) != 0 ||
      ::listen(socket_.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&bound), &bound_size) != 0) {
    fail(ExitStatus::internal, "cannot listen on a port ({}) see to the limits of this node",
         std::strerror(errno));
  }
  port_ = ntohs(bound.sin6_port);  // IPv4 has it in the same place
  thread_ = std::jthread([this](const std::stop_token& stop) { answer(stop); });
}

Listener::~Listener() = default;

void Listener::answer(const std::stop_token& stop) const {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (!stop.stop_requested()) {
    pollfd waiting{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, listener_nap_ms) != 1) continue;
    const Descriptor caller(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    // A caller that is gone again has seen that the way is open.
    if (caller) {
      static_cast<void>(::send(caller.get(), greeting_.data(), greeting_.size(), MSG_NOSIGNAL));
    }
  }
}

RouteFacts try_route(const RouteOptions& options) {
  RouteFacts facts{.interface = options.address.interface, .address = options.address.text};
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(options.address.text.c_str(), std::to_string(options.port).c_str(),
                                 &hints, &found);
  const UniqueHandle<AddressListTraits> owner(found);
  if (code != 0) {
    facts.error = ::gai_strerror(code);
    return facts;
  }
  const std::string answer = connect_and_read(options, *found, facts.error);
  if (facts.error.empty() && answer != options.greeting) {
    facts.error = answer.empty() ? "who answered said nothing"
                                 : "another host has this address too, and answered";
  }
  return facts;
}

}  // namespace lockstep::doctor
