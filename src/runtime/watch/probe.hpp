#pragma once

#include "dialer.hpp"
#include "link.hpp"

namespace lockstep::watch {

/// Checks whether a rank whose connection broke is alive: it listens on a port for as long as its
/// process lives. Keeps the connection once the system has accepted it, since it closes as soon as
/// the process ends.
class Probe final {
 public:
  Probe(const SocketAddress& port, const std::optional<SocketAddress>& from, double now,
        const SilenceLimits& silence = {});

  enum class Finding {
    unknown,
    alive,  ///< its system accepts connections; the process may be stopped
    gone,   ///< its port is closed
    silent  ///< its host was unreachable for the limit
  };
  [[nodiscard]] Finding step(double now);

  void add_to(std::vector<pollfd>& descriptors) const;
  [[nodiscard]] SteadyClock::time_point deadline() const noexcept { return dialer_.deadline(); }

 private:
  SocketAddress port_;
  SilenceLimits silence_;
  Dialer dialer_;
  Descriptor connection_;
  double heard_;  ///< when its system last accepted a connection
};

}  // namespace lockstep::watch
