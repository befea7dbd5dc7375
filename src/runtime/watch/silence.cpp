#include "silence.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

namespace lockstep::watch {
namespace {

void set(int descriptor, int level, int option, int value) noexcept {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

}  // namespace

void limit_silence(int descriptor, std::chrono::milliseconds limit) noexcept {
  // Probes of an idle connection begin at half of the limit.
  const int seconds = static_cast<int>(limit.count() / 1000);
  set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit.count()));
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, std::max(seconds / 2, 1));
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, std::max(seconds / 4, 1));
}

}  // namespace lockstep::watch
