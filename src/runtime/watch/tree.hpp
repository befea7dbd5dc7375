#pragma once

#include "judge.hpp"
#include "link.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::watch {

/// Seconds in which this process ran: after it was stopped, less than the wall's.
class WatchClock final {
 public:
  /// `longest`: what may pass between two looks while the process runs.
  explicit WatchClock(double longest) : longest_(longest) {}
  void look();
  [[nodiscard]] double now() const noexcept { return now_; }

 private:
  double longest_;
  double now_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// How a rank's watchdog is reached.
struct Endpoint {
  std::vector<std::string> addresses;  ///< as numbers, the best one first
  int port = 0;
};

struct TreeOptions {
  int rank = 0;
  int size = 1;
  int fan_out = 64;
  std::uint64_t job = 0;  ///< the same on all ranks, and no other job's
  Endpoint parent;
  std::chrono::milliseconds connect_limit = std::chrono::seconds(60);  ///< for all attempts
};

/// This rank's place in the tree of watchdogs: a connection to the rank above, those of the ranks
/// below, and what is known of the ranks from here down.
class Tree final {
 public:
  /// `listener` is where the ranks below come; absent where there are none.
  Tree(TreeOptions options, std::optional<Listener> listener);

  struct Event {
    enum class Kind {
      lost,          ///< a rank below, or the one above
      told_of_loss,  ///< one further away
      verdict,       ///< from above
      unreachable    ///< the rank above, after many attempts
    };
    Kind kind;
    int rank = 0;
    std::string text = {};
  };
  /// Waits until something comes, `wake` is readable or the time is over, and takes in what came.
  [[nodiscard]] std::vector<Event> exchange(int wake, std::chrono::milliseconds longest,
                                            double now);
  /// Tells the ranks above and below where this one stands.
  void publish(const RankReport& mine, double now);
  void tell_above(const std::string& loss);
  void tell_below(MessageKind kind, const std::string& text);
  void say_goodbye();
  /// Sends what is left, for a short time.
  void drain(std::chrono::milliseconds longest);

  /// Of all ranks of the job, as known here at `now`: of this rank, those below and the one above.
  [[nodiscard]] std::vector<RankReport> reports(double now) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Known {
    RankReport report;
    double at = 0;  ///< when it came
  };
  struct Below {
    Link link;
    int rank = -1;  ///< -1: has not said hello yet
  };

  [[nodiscard]] Known& known(int rank) { return known_[static_cast<std::size_t>(rank)]; }
  void connect();
  void report_above(double now);
  void take_from_above(double now, std::vector<Event>& events);
  void take_from_below(Below& below, double now, std::vector<Event>& events);
  void greet(Below& below, const std::string& hello);
  void note(const std::string& payload, double now);
  void mark_left(int rank);
  void lose(int rank, std::vector<Event>& events);

  TreeOptions options_;
  std::optional<Listener> listener_;
  std::vector<Known> known_;  ///< by rank
  std::deque<Below> below_;
  std::optional<Link> above_;
  bool above_spoke_ = false;
  bool above_left_ = false;
  std::size_t next_address_ = 0;
  Clock::time_point attempt_end_{};
  Clock::time_point attempts_end_;
};

}  // namespace lockstep::watch
