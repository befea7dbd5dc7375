#pragma once

#include "dialer.hpp"

namespace lockstep::watch {

/// How long a host may be out of reach before a rank of it is lost, in seconds.
constexpr double unreachable_limit = 20;

/// Finds out whether a rank whose connection broke is still there: it listens on a port as long as
/// its process lives. A connection that the system has accepted is kept, which says at once when
/// the process ends.
class Probe final {
 public:
  Probe(const SocketAddress& port, const std::optional<SocketAddress>& from, double now);

  enum class Finding {
    unknown,
    alive,  ///< its system accepts connections, though it may be stopped
    gone    ///< its port is closed, or its host out of reach for unreachable_limit
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
