#include "routes.hpp"

#include "lockstep/runtime/signals.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lockstep::doctor {
namespace {

/// How long a listener may take to notice a stop request.
constexpr int listener_nap_ms = 50;

using Clock = std::chrono::steady_clock;

/// Waits until the descriptor is ready for `events`; false at the deadline.
bool ready(const Descriptor& descriptor, short events, Clock::time_point deadline) {
  pollfd waiting{.fd = descriptor.get(), .events = events, .revents = 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return ::poll(&waiting, 1, static_cast<int>(std::max<long>(left.count(), 0))) == 1;
}

std::string connect_and_read(const RouteOptions& options, const SocketAddress& target,
                             std::string& error) {
  const auto deadline = Clock::now() + options.limit;
  const auto failed = [&error](const char* why) {
    error = why;
    return std::string();
  };
  const Descriptor descriptor(
      ::socket(target.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!descriptor) return failed(std::strerror(errno));
  const auto* name = reinterpret_cast<const sockaddr*>(&target.storage);
  if (::connect(descriptor.get(), name, target.size) != 0 && errno != EINPROGRESS)
    return failed(std::strerror(errno));
  if (!ready(descriptor, POLLOUT, deadline)) return failed("no answer");
  int fault = 0;
  socklen_t size = sizeof fault;
  ::getsockopt(descriptor.get(), SOL_SOCKET, SO_ERROR, &fault, &size);
  if (fault != 0) return failed(std::strerror(fault));
  std::string answer;
  std::array<char, 256> piece{};
  while (ready(descriptor, POLLIN, deadline)) {
    const ssize_t count = ::read(descriptor.get(), piece.data(), piece.size());
    if (count <= 0) break;
    answer.append(piece.data(), static_cast<std::size_t>(count));
  }
  return answer;
}

}  // namespace

Listener::Listener(std::string greeting, const std::optional<SocketAddress>& address)
    : greeting_(std::move(greeting)),
      socket_("check the limits of this node", address),
      thread_([this](const std::stop_token& stop) { answer(stop); }) {}

Listener::~Listener() = default;

void Listener::answer(const std::stop_token& stop) const {
  block_signals();
  while (!stop.stop_requested()) {
    pollfd waiting{.fd = socket_.descriptor(), .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, listener_nap_ms) != 1) continue;
    const Descriptor caller = socket_.accept();
    // Send errors are ignored: a caller that has left knows that the route works.
    if (caller) {
      static_cast<void>(::send(caller.get(), greeting_.data(), greeting_.size(), MSG_NOSIGNAL));
    }
  }
}

RouteFacts try_route(const RouteOptions& options) {
  RouteFacts facts{.interface = options.address.interface, .address = options.address.number};
  const auto target = parse_address(options.address.number, options.port);
  if (!target) {
    facts.error = "it is no address";
    return facts;
  }
  const std::string answer = connect_and_read(options, *target, facts.error);
  if (facts.error.empty() && answer != options.greeting) {
    facts.error = answer.empty() ? "who answered said nothing"
                                 : "another host has this address too, and answered";
  }
  return facts;
}

}  // namespace lockstep::doctor
