#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/doctor/facts.hpp"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::doctor {

/// An address by which others may reach this node.
struct Address {
  std::string interface;
  std::string text;  ///< "10.1.0.7", "2001:db8::7"
};
/// Of all interfaces that are up, without loopback and link-local ones.
[[nodiscard]] std::vector<Address> own_addresses();

/// Answers whoever connects, on any address, with a greeting that says who this is: on networks of
/// containers each host has the same address, and a connection to another host ends at home.
class Listener final {
 public:
  /// Error(internal) where no port can be opened.
  explicit Listener(std::string greeting);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] const std::string& greeting() const noexcept { return greeting_; }

 private:
  void answer(const std::stop_token& stop) const;

  std::string greeting_;
  Descriptor socket_;
  int port_ = 0;
  std::jthread thread_;
};

struct RouteOptions {
  Address address;
  int port = 0;
  std::string greeting;  ///< of who should answer
  std::chrono::milliseconds limit{};
};
/// Connects, by TCP.
[[nodiscard]] RouteFacts try_route(const RouteOptions& options);

}  // namespace lockstep::doctor
