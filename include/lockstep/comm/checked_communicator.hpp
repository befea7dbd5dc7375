#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Compares what ranks are about to ask of their communicators, over communicators of its own, so
/// that ranks which differ meet here instead of in each other's collectives. Costs an all-gather
/// a collective, two in groups: for debugging.
class CollectiveComparison final {
 public:
  /// `step`: where the rank stands, compared too. `hosts` by rank, for the error.
  CollectiveComparison(std::unique_ptr<Communicator> own, std::function<std::int64_t()> step,
                       std::vector<std::string> hosts);

  /// From the next call on, ranks compare with those of their group first: `ranks` of the job, over
  /// `group`. All ranks set it between the same calls.
  void compare_in_groups(std::unique_ptr<Communicator> group, std::vector<int> ranks);

  /// Who makes a communicator's calls: all ranks the same ones, or each group its own.
  enum class Callers { all, group };
  /// Another communicator whose calls are compared; the same order on all ranks.
  [[nodiscard]] int add(const std::string& name, Callers callers = Callers::all);
  /// Collective over the callers: an Error(internal) on all that are compared where the calls
  /// differ, naming the first rank whose call is not that of most, with both. `communicator`: as
  /// from add().
  void compare(const CollectiveCall& call, int communicator);

 private:
  struct Record;
  /// Ranks that compare.
  struct Circle {
    std::unique_ptr<Communicator> comm;
    std::vector<int> ranks;  ///< of the job
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
  std::vector<std::string> names_;  ///< of communicators
  std::vector<Callers> callers_;
};

/// Another communicator, each of whose collectives is compared before it is made.
class CheckedCommunicator final : public ForwardingCommunicator {
 public:
  /// Both outlive it. `name`: "the host's", as errors call it.
  CheckedCommunicator(Communicator& inner, CollectiveComparison& comparison,
                      const std::string& name,
                      CollectiveComparison::Callers callers = CollectiveComparison::Callers::all)
      : ForwardingCommunicator(inner),
        comparison_(comparison),
        communicator_(comparison.add(name, callers)) {}

 private:
  void begin(const CollectiveCall& call) override { comparison_.compare(call, communicator_); }
  void before_start(const CollectiveCall& call) override { begin(call); }

  CollectiveComparison& comparison_;
  int communicator_;
};

}  // namespace lockstep
