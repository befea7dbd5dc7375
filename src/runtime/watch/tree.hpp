#pragma once

#include "admission.hpp"
#include "judge.hpp"
#include "link.hpp"
#include "probe.hpp"
#include "uplink.hpp"

#include <chrono>
#include <list>
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

struct TreeOptions {
  int rank = 0;
  int size = 1;
  int fan_out = 64;
  Bytes32 secret{};  ///< the same on all ranks, and known to nobody else
  Endpoint parent = {};
  std::vector<int> child_ports = {};          ///< where each of this rank's children listens
  std::optional<SocketAddress> address = {};  ///< this rank's; null: any of the host's
  std::chrono::milliseconds connect_limit = std::chrono::seconds(60);  ///< for all attempts
};

/// This rank's place in the tree of watchdogs: a connection to its parent, those of its children,
/// and what is known of the ranks from here down.
class Tree final {
 public:
  /// `listener` may be absent where this rank is the only one.
  Tree(TreeOptions options, std::optional<Listener> listener);

  struct Event {
    enum class Kind {
      unreachable,      ///< the connection of a child or of the parent broke; text: why
      reachable,        ///< one that was unreachable or lost is connected again
      lost,             ///< a child or the parent is gone
      told_of_loss,     ///< `from` says that this rank is gone; text: how
      told_of_return,   ///< `from` says that this rank is not
      told_of_failure,  ///< the watchdogs stop; text: why
      verdict,          ///< from the parent
      never_connected   ///< to the parent
    };
    Kind kind;
    int rank = 0;
    int from = 0;
    std::string text = {};
  };
  /// Waits until a message comes, `wake` is readable or the time is over, looks at the clock and
  /// processes what has come.
  [[nodiscard]] std::vector<Event> exchange(int wake, std::chrono::milliseconds longest,
                                            WatchClock& clock);
  /// Tells the parent and the children where this rank stands.
  void publish(const RankReport& mine, double now);
  void tell_above(MessageKind kind, const std::string& payload);
  void tell_below(MessageKind kind, const std::string& payload);
  void say_goodbye();
  /// Sends what is left, for a short time.
  void drain(std::chrono::milliseconds longest);

  /// Of all ranks of the job, as known here at `now`: of this rank, those below and the parent.
  [[nodiscard]] std::vector<RankReport> reports(double now) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Known {
    RankReport report;
    double at = 0;  ///< when it came
  };
  struct Child {
    int rank;
    Link link;
    std::optional<SocketAddress> port;  ///< where it listens
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

  [[nodiscard]] Known& known(int rank) { return known_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] int first_child() const noexcept;
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
  void lose(int rank, std::vector<Event>& events);

  TreeOptions options_;
  std::optional<Admission> admission_;
  std::optional<Uplink> uplink_;  ///< of all but rank 0
  std::vector<Known> known_;      ///< by rank
  std::list<Child> children_;
  std::list<Broken> broken_;
  std::optional<Outage> parent_outage_;
};

}  // namespace lockstep::watch
