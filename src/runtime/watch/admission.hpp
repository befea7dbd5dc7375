#pragma once

#include "dialer.hpp"
#include "link.hpp"

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace lockstep::watch {

/// Listening socket for the connections of a rank's children.
class Listener final {
 public:
  /// Binds to this address; nullopt: to all of the host's. Throws Error(internal).
  explicit Listener(const std::optional<SocketAddress>& address);

  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] int port() const noexcept { return socket_.port(); }
  /// Empty if no connection is pending or accepting fails; errno tells which.
  [[nodiscard]] Descriptor accept() const { return socket_.accept(); }

 private:
  ListeningSocket socket_;
};

struct AdmissionOptions {
  int rank = 0;
  std::vector<int> children = {};
  Bytes32 secret{};
  std::size_t largest = 0;  ///< bytes of a message once a connection is admitted
  SilenceLimits silence = {};
};

/// Accepts connections only from a rank's children. Until a connection has proved that it knows the
/// job's secret, it may send only one Hello within a time limit. The number of such connections,
/// and so their use of memory and open files, is bounded.
class Admission final {
 public:
  Admission(AdmissionOptions options, Listener listener);

  struct Child {
    int rank;
    Link link;
  };
  /// Returns the children admitted since the last call.
  [[nodiscard]] std::vector<Child> step();

  void add_to(std::vector<pollfd>& descriptors) const;
  [[nodiscard]] SteadyClock::time_point deadline() const noexcept;

 private:
  struct Pending {
    Link link;
    Bytes32 nonce;
    SteadyClock::time_point since;
  };

  [[nodiscard]] bool full() const noexcept { return pending_.size() >= most_; }
  [[nodiscard]] bool paused() const noexcept { return SteadyClock::now() < paused_until_; }
  [[nodiscard]] std::chrono::milliseconds time_limit() const noexcept;
  void accept();
  [[nodiscard]] std::optional<int> greet(Pending& pending);

  AdmissionOptions options_;
  Listener listener_;
  std::size_t most_;
  std::deque<Pending> pending_;  ///< oldest first
  SteadyClock::time_point paused_until_{};
};

}  // namespace lockstep::watch
