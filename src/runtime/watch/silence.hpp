#pragma once

#include <chrono>

namespace lockstep::watch {

/// How long a node may be silent. A node that loses power neither closes nor refuses connections.
/// Its ranks are lost after the sum of both; shorter stalls of the network have no effect.
struct SilenceLimits {
  /// A connection without acknowledgements for this long breaks, even when idle.
  std::chrono::milliseconds connection = std::chrono::seconds(20);
  /// After that, a rank whose host accepts no connection for this long is lost.
  std::chrono::milliseconds host = std::chrono::seconds(10);

  [[nodiscard]] double host_seconds() const noexcept {
    return std::chrono::duration<double>(host).count();
  }
};

/// Breaks this TCP connection after `limit` without acknowledgements.
void limit_silence(int descriptor, std::chrono::milliseconds limit) noexcept;

}  // namespace lockstep::watch
