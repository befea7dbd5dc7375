#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// For debugging: compares each collective call across ranks before it runs, so that a mismatch
/// raises an error instead of a hang. Uses separate communicators. Each collective costs one extra
/// all-gather, or two with groups.
class CollectiveComparison final {
 public:
  /// `step` returns the current step, compared too; empty: 0. `hosts`: by rank, for the error.
  CollectiveComparison(std::unique_ptr<Communicator> own, std::function<std::int64_t()> step,
                       std::vector<std::string> hosts);

  /// From the next call on, ranks compare within their group first: `ranks`, ascending job ranks.
  /// All ranks must call this between the same two collectives.
  void compare_in_groups(std::vector<int> ranks);

  /// Which ranks must make the same calls on a communicator: all ranks, or those of each group.
  enum class Callers { all, group };
  /// Registers a communicator and returns its number; same order on all ranks.
  [[nodiscard]] int add(const std::string& name, Callers callers = Callers::all);
  /// Collective over the callers. If the calls differ, throws Error(internal) on all compared
  /// ranks. The error shows the majority's call and the first rank that differs from it.
  /// `communicator`: a number from add().
  void compare(const CollectiveCall& call, int communicator);

 private:
  struct Record;
  /// Ranks whose calls are compared with each other.
  struct Circle {
    std::unique_ptr<Communicator> comm;
    std::vector<int> ranks;  ///< job ranks
    std::int64_t calls = 0;
  };
  void compare(Circle& circle, const CollectiveCall& call, int communicator);
  [[nodiscard]] std::string describe(const Record& record) const;
  /// "rank 3 (node7)"
  [[nodiscard]] std::string name(int rank) const;

  Circle all_;
  std::optional<Circle> group_;
  std::function<std::int64_t()> step_;
  std::vector<std::string> hosts_;
  std::vector<std::string> names_;  ///< by communicator
  std::vector<Callers> callers_;
};

/// Wraps a communicator and compares each collective across ranks before forwarding it. Messages
/// are not compared, as only two ranks take part.
class CheckedCommunicator final : public ForwardingCommunicator {
 public:
  /// Both references must outlive it. `name`: for errors, such as "the host's".
  CheckedCommunicator(Communicator& inner, CollectiveComparison& comparison,
                      const std::string& name,
                      CollectiveComparison::Callers callers = CollectiveComparison::Callers::all)
      : ForwardingCommunicator(inner),
        comparison_(comparison),
        communicator_(comparison.add(name, callers)) {}

 private:
  void begin(const CollectiveCall& call) override { comparison_.compare(call, communicator_); }
  void before_start(const CollectiveCall& call) override {
    if (!is_message(call.kind)) begin(call);
  }

  CollectiveComparison& comparison_;
  int communicator_;
};

}  // namespace lockstep
