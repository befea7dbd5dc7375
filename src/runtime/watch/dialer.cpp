#include "dialer.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::watch {
namespace {

using namespace std::chrono_literals;

constexpr auto attempt_limit = 3s;
constexpr std::chrono::milliseconds shortest_pause = 50ms;
constexpr std::chrono::milliseconds longest_pause = 5s;

const sockaddr* name_of(const SocketAddress& address) noexcept {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

}  // namespace

void Dialer::dial(const SocketAddress& to) {
  to_ = to;
  socket_.reset();
  next_ = SteadyClock::now() + pause_;
  pause_ = std::clamp(2 * pause_, shortest_pause, longest_pause);
}

Dialer::Outcome Dialer::step() {
  if (!to_) return Outcome::waiting;
  if (!socket_) return SteadyClock::now() < next_ ? Outcome::waiting : begin();
  pollfd ready{.fd = socket_.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&ready, 1, 0) == 1) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    return end(error == 0 ? Outcome::connected : Outcome::failed, error);
  }
  return SteadyClock::now() < next_ ? Outcome::waiting : end(Outcome::failed, ETIMEDOUT);
}

Dialer::Outcome Dialer::begin() {
  next_ = SteadyClock::now() + attempt_limit;
  socket_ =
      Descriptor(::socket(to_->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_) return end(Outcome::failed, errno);
  const bool same_family = from_ && from_->storage.ss_family == to_->storage.ss_family;
  if (same_family && ::bind(socket_.get(), name_of(*from_), from_->size) != 0) {
    return end(Outcome::failed, errno);
  }
  if (::connect(socket_.get(), name_of(*to_), to_->size) == 0) return end(Outcome::connected, 0);
  return errno == EINPROGRESS ? Outcome::waiting : end(Outcome::failed, errno);
}

Dialer::Outcome Dialer::end(Outcome outcome, int error) {
  to_.reset();
  if (outcome == Outcome::connected) return outcome;
  socket_.reset();
  reason_ = std::strerror(error);
  return error == ECONNREFUSED ? Outcome::refused : outcome;
}

void Dialer::forget_attempts() noexcept {
  pause_ = 0ms;
}

void Dialer::stop() noexcept {
  to_.reset();
  socket_.reset();
}

void Dialer::add_to(std::vector<pollfd>& descriptors) const {
  if (to_ && socket_) {
    descriptors.push_back({.fd = socket_.get(), .events = POLLOUT, .revents = 0});
  }
}

SteadyClock::time_point Dialer::deadline() const noexcept {
  return to_ ? next_ : SteadyClock::time_point::max();
}

}  // namespace lockstep::watch
