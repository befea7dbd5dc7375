#pragma once

#include "admission.hpp"
#include "judge.hpp"
#include "link.hpp"
#include "probe.hpp"
#include "uplink.hpp"

#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::watch {

/// Counts the seconds in which this process ran, excluding time in which it was stopped.
class WatchClock final {
 public:
  /// `longest`: maximum seconds between two look() calls while the process runs.
  explicit WatchClock(double longest) : longest_(longest) {}
  void look();
  [[nodiscard]] double now() const noexcept { return now_; }

 private:
  double longest_;
  double now_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

struct TreeOptions {
  int rank = 0;
  int size = 1;
  std::vector<int> parents = {-1};  ///< by rank: tree_parents()
  Bytes32 secret{};                 ///< shared by all ranks of the job
  Endpoint parent = {};
  std::map<int, int> child_ports = {};        ///< listening port of each child, by rank
  std::optional<SocketAddress> address = {};  ///< this rank's; nullopt: any of the host's
  std::chrono::milliseconds connect_limit = std::chrono::seconds(60);  ///< for all attempts
  SilenceLimits silence = {};
};

/// This rank's node in the tree of watchdogs: the connections to its parent and children, and the
/// latest reports of the ranks below.
class Tree final {
 public:
  /// `listener` may be nullopt if there is only one rank.
  Tree(TreeOptions options, std::optional<Listener> listener);

  struct Event {
    enum class Kind {
      unreachable,      ///< the connection to a child or the parent broke; text: why
      reachable,        ///< an unreachable or lost child or parent is connected again
      lost,             ///< a child or the parent is gone: its process ended
      lost_silently,    ///< as lost, but its node does not answer
      told_of_loss,     ///< `from` reports that `rank` is gone; text: how
      told_of_return,   ///< `from` reports that `rank` is back
      told_of_error,    ///< `rank` below cannot go on; text: why
      told_of_failure,  ///< the watchdogs stop; text: why
      verdict,          ///< the parent says that the job ends; text: why
      never_connected   ///< no connection to the parent within the limit
    };
    Kind kind;
    int rank = 0;
    int from = 0;
    std::string text = {};
    int status = 0;  ///< told_of_error: the exit status
  };
  /// Waits until a message arrives, `wake` is readable or the time is over. Then updates the clock
  /// and processes the messages.
  [[nodiscard]] std::vector<Event> exchange(int wake, std::chrono::milliseconds longest,
                                            WatchClock& clock);
  /// Sends this rank's report to its children, and all reports from here down to the parent.
  void publish(const RankReport& mine, double now);
  void tell_above(MessageKind kind, const std::string& payload);
  void tell_below(MessageKind kind, const std::string& payload);
  void say_goodbye();
  /// Sends pending messages, for at most `longest`.
  void drain(std::chrono::milliseconds longest);

  /// A rank's report as of `now`; see reports().
  [[nodiscard]] RankReport report(int rank, double now) const;
  /// One report per rank of the job as of `now`; current for this rank, those below and the parent.
  [[nodiscard]] std::vector<RankReport> reports(double now) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Known {
    RankReport report;
    double at = 0;  ///< time of arrival
  };
  struct Child {
    int rank;
    Link link;
    std::optional<SocketAddress> port;  ///< address and port on which it listens
  };
  struct Outage {
    double since = 0;
    bool told = false;
  };
  /// A child whose connection broke.
  struct Broken {
    int rank;
    std::string reason;
    Probe probe;
    Outage outage;
  };

  [[nodiscard]] int parent_of(int rank) const {
    return options_.parents[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] Known& known(int rank) { return known_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Known& known(int rank) const {
    return known_[static_cast<std::size_t>(rank)];
  }
  void wait(int wake, std::chrono::milliseconds longest) const;
  void report_above(double now);
  void take_from_above(double now, std::vector<Event>& events);
  void take_from_below(Child& child, double now, std::vector<Event>& events);
  void take_message(const Message& message, int from, double now, std::vector<Event>& events);
  void admit(Admission::Child child, double now, std::vector<Event>& events);
  void look_after_broken(double now, std::vector<Event>& events);
  void note(const std::string& payload, double now);
  void note_connection(int rank, const Outage* outage, double now, std::vector<Event>& events);
  void tell_outage(Outage& outage, Event event, double now, std::vector<Event>& events) const;
  void mark_left(int rank);
  void lose(int rank, Event::Kind how, std::vector<Event>& events);

  TreeOptions options_;
  std::optional<Admission> admission_;
  std::optional<Uplink> uplink_;  ///< null on rank 0
  std::vector<Known> known_;      ///< by rank
  std::list<Child> children_;
  std::list<Broken> broken_;
  std::optional<Outage> parent_outage_;
};

}  // namespace lockstep::watch
