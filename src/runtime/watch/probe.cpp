#include "probe.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace lockstep::watch {
namespace {

/// Whether the connection has ended; discards received data.
bool has_ended(int descriptor) noexcept {
  std::array<char, 256> ignored;
  const ssize_t count = ::recv(descriptor, ignored.data(), ignored.size(), 0);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

Probe::Probe(const SocketAddress& port, const std::optional<SocketAddress>& from, double now,
             const SilenceLimits& silence)
    : port_(port), silence_(silence), dialer_(from), heard_(now) {
  dialer_.dial(port_);
}

Probe::Finding Probe::step(double now) {
  if (connection_) {
    heard_ = now;
    if (!has_ended(connection_.get())) return Finding::alive;
    connection_.reset();
    dialer_.dial(port_);
  }
  switch (dialer_.step()) {
    case Dialer::Outcome::waiting:
      break;
    case Dialer::Outcome::connected:
      connection_ = dialer_.take();
      limit_silence(connection_.get(), silence_.connection);
      heard_ = now;
      return Finding::alive;
    case Dialer::Outcome::refused:
      return Finding::gone;
    case Dialer::Outcome::failed:
      dialer_.dial(port_);
      break;
  }
  return now - heard_ > silence_.host_seconds() ? Finding::silent : Finding::unknown;
}

void Probe::add_to(std::vector<pollfd>& descriptors) const {
  dialer_.add_to(descriptors);
  if (connection_) {
    descriptors.push_back({.fd = connection_.get(), .events = POLLIN, .revents = 0});
  }
}

}  // namespace lockstep::watch
