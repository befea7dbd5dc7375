#pragma once

#include "lockstep/doctor/facts.hpp"
#include "lockstep/runtime/sockets.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::doctor {

/// Answers whoever connects, on any address, with a greeting that says who this is: on networks of
/// containers each host has the same address, and a connection to another host ends at home.
class Listener final {
 public:
  /// Error(internal) where no port can be opened.
  explicit Listener(std::string greeting);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] int port() const noexcept { return socket_.port(); }
  [[nodiscard]] const std::string& greeting() const noexcept { return greeting_; }

 private:
  void answer(const std::stop_token& stop) const;

  std::string greeting_;
  ListeningSocket socket_{"see to the limits of this node"};
  std::jthread thread_;
};

struct RouteOptions {
  InterfaceAddress address;
  int port = 0;
  std::string greeting;  ///< of who should answer
  std::chrono::milliseconds limit{};
};
/// Connects, by TCP.
[[nodiscard]] RouteFacts try_route(const RouteOptions& options);

}  // namespace lockstep::doctor
