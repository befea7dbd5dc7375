#pragma once

#include "lockstep/doctor/facts.hpp"
#include "lockstep/runtime/sockets.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::doctor {

/// Listens on one address, or all, and answers each connection with a greeting that identifies this
/// host. On container networks each host has the same address, so a connection may reach the own
/// host.
class Listener final {
 public:
  /// Throws Error(internal) if no port can be opened.
  Listener(std::string greeting, const std::optional<SocketAddress>& address);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] int port() const noexcept { return socket_.port(); }
  [[nodiscard]] const std::string& greeting() const noexcept { return greeting_; }

 private:
  void answer(const std::stop_token& stop) const;

  std::string greeting_;
  ListeningSocket socket_;
  std::jthread thread_;
};

struct RouteOptions {
  InterfaceAddress address;
  int port = 0;
  std::string greeting;               ///< expected from the target
  std::chrono::milliseconds limit{};  ///< in all
};
/// Connects by TCP and compares the greeting.
[[nodiscard]] RouteFacts try_route(const RouteOptions& options);

}  // namespace lockstep::doctor
