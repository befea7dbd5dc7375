#pragma once

#include "dialer.hpp"
#include "link.hpp"

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace lockstep::watch {

/// Where the connections of a rank's children come in.
class Listener final {
 public:
  /// On this address alone; null: on all of the host's. Error(internal).
  explicit Listener(const std::optional<SocketAddress>& address);

  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }
  [[nodiscard]] int port() const noexcept { return socket_.port(); }
  /// Empty where there is none, or none can be taken; errno says which.
  [[nodiscard]] Descriptor accept() const { return socket_.accept(); }

 private:
  ListeningSocket socket_;
};

struct AdmissionOptions {
  int rank = 0;
  int first_child = 0;
  int end_child = 0;  ///< one behind the last
  Bytes32 secret{};
  std::size_t largest = 0;  ///< bytes of a message once a connection is admitted
};

/// Lets a rank's children in, and nobody else. Until a connection has proved that it knows the
/// job's secret, it may send one Hello, within a time; the number of such connections is bounded,
/// and so is what they take of this process's memory and open files.
class Admission final {
 public:
  Admission(AdmissionOptions options, Listener listener);

  struct Child {
    int rank;
    Link link;
  };
  /// Those that have come in since.
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
  std::deque<Pending> pending_;  ///< the oldest first
  SteadyClock::time_point paused_until_{};
};

}  // namespace lockstep::watch
