#pragma once

#include "dialer.hpp"
#include "link.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::watch {

/// Where a rank's watchdog listens.
struct Endpoint {
  std::vector<std::string> addresses;  ///< as numbers, best first
  int port = 0;
};

struct UplinkOptions {
  int rank = 0;
  int parent = 0;
  Bytes32 secret{};
  Endpoint endpoint = {};                  ///< the parent's
  std::optional<SocketAddress> from = {};  ///< this rank's address; nullopt: any
  std::chrono::milliseconds connect_limit = std::chrono::seconds(60);  ///< for the first connection
  std::size_t largest = 0;                                             ///< bytes of a message
  SilenceLimits silence = {};
};

/// The connection to the parent in the tree of watchdogs; reconnects when it breaks.
class Uplink final {
 public:
  explicit Uplink(UplinkOptions options);

  enum class State {
    connecting,  ///< for the first time
    connected,
    unreachable,  ///< it broke; the parent's process may live
    lost,         ///< the port is closed or the host unreachable; keeps trying
    closed        ///< by close(), or not connected within the limit
  };
  [[nodiscard]] State state() const noexcept { return state_; }
  /// When lost: whether its host does not answer; otherwise the port is closed.
  [[nodiscard]] bool silent() const noexcept { return silent_; }
  /// Why the connection broke.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }

  /// Progresses pending work; `now`: seconds in which this process ran.
  void step(double now);
  /// Waits for the end of a handshake in which this rank has proved itself; at most `longest`.
  void finish_handshake(std::chrono::milliseconds longest);
  /// The next message of an established connection.
  [[nodiscard]] std::optional<Message> receive();
  /// Does nothing unless connected.
  void send(MessageKind kind, std::string_view payload = {});
  void flush() noexcept;
  [[nodiscard]] bool has_more_to_send() const noexcept;
  void close() noexcept;

  void add_to(std::vector<pollfd>& descriptors) const;
  [[nodiscard]] SteadyClock::time_point deadline() const noexcept;

 private:
  void dial();
  void knock();
  void shake_hands();

  UplinkOptions options_;
  Dialer dialer_;
  std::vector<SocketAddress> addresses_;
  std::size_t next_address_ = 0;
  std::optional<Link> link_;
  Session session_;
  std::uint64_t knocks_ = 0;
  bool greeted_ = false;  ///< Hello has been sent
  State state_ = State::connecting;
  bool silent_ = false;
  std::string reason_;
  double now_ = 0;    ///< time of the last step()
  double heard_ = 0;  ///< when the parent's system last accepted a connection
  SteadyClock::time_point attempt_end_ = SteadyClock::time_point::max();
  SteadyClock::time_point first_end_;
};

}  // namespace lockstep::watch
