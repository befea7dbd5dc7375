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

/// Makes one TCP connection after another without blocking; the pause between attempts grows.
class Dialer final {
 public:
  /// `from`: local address of connections; nullopt: any.
  explicit Dialer(const std::optional<SocketAddress>& from) : from_(from) {}

  enum class Outcome {
    waiting,
    connected,  ///< take() returns the connection
    refused,    ///< the host reports that no process listens on the port
    failed
  };
  /// Starts one attempt, at once or after the pause that follows the previous attempt.
  void dial(const SocketAddress& to);
  [[nodiscard]] bool dialing() const noexcept { return to_.has_value(); }
  /// The state of the attempt. Any result except `waiting` ends it.
  [[nodiscard]] Outcome step();
  [[nodiscard]] Descriptor take() { return std::move(socket_); }
  /// Why the last attempt was refused or failed.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  /// Resets the pause, so that the next attempt starts at once.
  void forget_attempts() noexcept;
  void stop() noexcept;

  void add_to(std::vector<pollfd>& descriptors) const;
  /// When to call step() even if no descriptor is ready.
  [[nodiscard]] SteadyClock::time_point deadline() const noexcept;

 private:
  [[nodiscard]] Outcome begin();
  [[nodiscard]] Outcome end(Outcome outcome, int error);

  std::optional<SocketAddress> from_;
  std::optional<SocketAddress> to_;
  Descriptor socket_;  ///< empty: the pause is not over
  std::chrono::milliseconds pause_{0};
  SteadyClock::time_point next_{};  ///< end of the pause or of the attempt
  std::string reason_;
};

}  // namespace lockstep::watch
