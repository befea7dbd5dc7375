#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/runtime/sockets.hpp"

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::watch {

using SteadyClock = std::chrono::steady_clock;

/// Makes TCP connections, one at a time, without blocking; the time between attempts grows.
class Dialer final {
 public:
  /// Connections come `from` this address; null: from any.
  explicit Dialer(const std::optional<SocketAddress>& from) : from_(from) {}

  enum class Outcome {
    waiting,
    connected,  ///< take() gives the connection
    refused,    ///< the host says that nobody listens on the port
    failed
  };
  /// Tries once, at once or when the pause after the attempt before is over.
  void dial(const SocketAddress& to);
  [[nodiscard]] bool dialing() const noexcept { return to_.has_value(); }
  /// What has come of the attempt. Other than `waiting`, it is over.
  [[nodiscard]] Outcome step();
  [[nodiscard]] Descriptor take() { return std::move(socket_); }
  /// Why the last attempt was refused or failed.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// The next attempt is made at once.
  void forget_attempts() noexcept;
  void stop() noexcept;

  void add_to(std::vector<pollfd>& descriptors) const;
  /// When step() has something to do, whatever comes.
  [[nodiscard]] SteadyClock::time_point deadline() const noexcept;

 private:
  [[nodiscard]] Outcome begin();
  [[nodiscard]] Outcome end(Outcome outcome, int error);

  std::optional<SocketAddress> from_;
  std::optional<SocketAddress> to_;
  Descriptor socket_;  ///< empty: the pause is not over
  std::chrono::milliseconds pause_{0};
  SteadyClock::time_point next_{};  ///< the pause's end, or the attempt's
  std::string reason_;
};

}  // namespace lockstep::watch
