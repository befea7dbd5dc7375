#pragma once

#include "dialer.hpp"

namespace lockstep::watch {

/// Seconds that a host may be unreachable before its rank counts as lost.
constexpr double unreachable_limit = 20;

/// Checks whether a rank whose connection broke is alive: it listens on a port for as long as its
/// process lives. Keeps the connection once the system has accepted it, since it closes as soon as
/// the process ends.
class Probe final {
 public:
  Probe(const SocketAddress& port, const std::optional<SocketAddress>& from, double now);

  enum class Finding {
    unknown,
    alive,  ///< its system accepts connections; the process may be stopped
    gone    ///< its port is closed, or its host was unreachable for unreachable_limit
  };
  [[nodiscard]] Finding step(double now);

  void add_to(std::vector<pollfd>& descriptors) const;
  [[nodiscard]] SteadyClock::time_point deadline() const noexcept { return dialer_.deadline(); }

 private:
  SocketAddress port_;
  Dialer dialer_;
  Descriptor connection_;
  double heard_;  ///< when its system last accepted a connection
};

}  // namespace lockstep::watch
