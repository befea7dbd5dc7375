#pragma once

#include "dialer.hpp"
#include "link.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
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

/// Accepts connections only from a rank's children. All waiting connections are accepted at once,
/// so that strangers cannot fill the system's queue. One whose first message is a child's Knock
/// then has a place of its own. Of the others the newest few stay for some seconds: their number,
/// and so their use of memory and open files, is bounded, and they get no answer.
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
  struct Stranger {
    Link link;
    SteadyClock::time_point since;
  };
  /// Has knocked, and is to answer the challenge.
  struct Caller {
    int rank;
    Link link;
    Bytes32 nonce;
    SteadyClock::time_point since;
  };

  [[nodiscard]] bool paused() const noexcept { return SteadyClock::now() < paused_until_; }
  void accept();
  void hear(Stranger& stranger);
  void drop_oldest();
  [[nodiscard]] bool greet(Caller& caller);

  AdmissionOptions options_;
  Listener listener_;
  std::deque<Stranger> strangers_;       ///< oldest first
  std::vector<Caller> callers_;          ///< at most one of each child
  std::map<int, std::uint64_t> knocks_;  ///< by child: the last count
  SteadyClock::time_point paused_until_{};
};

}  // namespace lockstep::watch
