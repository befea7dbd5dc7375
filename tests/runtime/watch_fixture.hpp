#pragma once

#include "../../src/runtime/watch/tree.hpp"

#include <sys/eventfd.h>

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::test {

using watch::Bytes32;
using watch::RankReport;
using watch::Tree;
using namespace std::chrono_literals;

inline RankReport running(int rank) {
  RankReport report;
  report.rank = rank;
  report.state = RankReport::State::running;
  return report;
}

inline std::optional<SocketAddress> loopback(int port = 0) {
  return parse_address("127.0.0.1", port);
}

/// A chain of three ranks' trees, in one process: rank 0 is the parent of 1, and 1 that of 2.
class Row final {
 public:
  using State = RankReport::State;
  using Kind = Tree::Event::Kind;

  /// `addresses`: of each parent; it listens on 127.0.0.1.
  explicit Row(const Bytes32& secret_of_last = {7},
               std::vector<std::string> addresses = {"127.0.0.1"},
               const watch::SilenceLimits& silence = {})
      : secrets_{{{7}, {7}, secret_of_last}}, addresses_(std::move(addresses)), silence_(silence) {
    std::array<std::optional<watch::Listener>, 3> listeners;
    for (std::size_t i = 0; i < 3; ++i) {
      listeners[i].emplace(loopback());
      ports[i] = listeners[i]->port();
    }
    for (std::size_t i = 0; i < 3; ++i) begin(i, std::move(*listeners[i]));
  }
  /// Creates a rank's tree. If it replaces one that has ended, the rank seems to reconnect.
  void begin(std::size_t rank, watch::Listener listener) {
    std::map<int, int> child_ports;
    if (rank < 2) child_ports.emplace(static_cast<int>(rank) + 1, ports[rank + 1]);
    watch::Endpoint parent;
    if (rank > 0) parent = {.addresses = addresses_, .port = ports[rank - 1]};
    trees[rank] = std::make_unique<Tree>(watch::TreeOptions{.rank = static_cast<int>(rank),
                                                            .size = 3,
                                                            .parents = {-1, 0, 1},
                                                            .secret = secrets_[rank],
                                                            .parent = std::move(parent),
                                                            .child_ports = std::move(child_ports),
                                                            .silence = silence_},
                                         std::move(listener));
  }
  /// Every rank exchanges messages once. Keeps the events of each rank.
  void talk_once() {
    for (std::size_t rank = 0; rank < trees.size(); ++rank) {
      if (!trees[rank]) continue;
      trees[rank]->publish(running(static_cast<int>(rank)), now());
      for (auto& event : trees[rank]->exchange(wake.get(), 5ms, clock_)) {
        events[rank].push_back(std::move(event));
      }
    }
  }
  /// Exchanges messages until `condition` holds; false after `longest`.
  template <typename Condition>
  [[nodiscard]] bool talk_until(Condition&& condition, std::chrono::seconds longest = 30s) {
    for (const auto end = std::chrono::steady_clock::now() + longest;
         std::chrono::steady_clock::now() < end;) {
      talk_once();
      if (condition()) return true;
    }
    return false;
  }
  void talk_for(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    static_cast<void>(talk_until([&] { return std::chrono::steady_clock::now() > end; }));
  }
  [[nodiscard]] bool all_have_met() const {
    return state(1, 0) == State::running && state(2, 0) == State::running &&
           state(0, 1) == State::running && state(2, 1) == State::running;
  }
  [[nodiscard]] State state(std::size_t of, std::size_t seen_by) const {
    return trees[seen_by]->reports(now())[of].state;
  }
  [[nodiscard]] bool saw(std::size_t who, Kind kind) const {
    for (const auto& event : events[who]) {
      if (event.kind == kind) return true;
    }
    return false;
  }
  [[nodiscard]] double now() const {
    clock_.look();
    return clock_.now();
  }

  std::array<int, 3> ports{};
  std::array<std::unique_ptr<Tree>, 3> trees;
  std::array<std::vector<Tree::Event>, 3> events;
  Descriptor wake{::eventfd(0, EFD_CLOEXEC)};

 private:
  std::array<Bytes32, 3> secrets_;
  std::vector<std::string> addresses_;
  watch::SilenceLimits silence_;
  mutable watch::WatchClock clock_{60};
};

/// Number of exchanges in `time`; an exchange that receives nothing lasts 100 ms.
inline int exchanges_in(std::chrono::milliseconds time, Tree& tree, const Descriptor& wake) {
  int count = 0;
  watch::WatchClock clock(60);
  for (const auto end = std::chrono::steady_clock::now() + time;
       std::chrono::steady_clock::now() < end; ++count) {
    static_cast<void>(tree.exchange(wake.get(), 100ms, clock));
  }
  return count;
}

}  // namespace lockstep::test
