#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// Compares what ranks are about to ask of their communicators, over a communicator of its own, so
/// that ranks which differ meet here instead of in each other's collectives. Costs an all-gather
/// a collective: for debugging.
class CollectiveComparison final {
 public:
  /// `step`: where the rank stands, compared too. `hosts` by rank, for the error.
  CollectiveComparison(std::unique_ptr<Communicator> own, std::function<std::int64_t()> step,
                       std::vector<std::string> hosts);

  /// Another communicator whose calls are compared; the same order on all ranks.
  [[nodiscard]] int add(const std::string& name);
  /// Collective: an Error(internal) on all ranks alike where the calls differ, naming the first
  /// rank whose call is not that of most, with both. `communicator`: as from add().
  void compare(const CollectiveCall& call, int communicator);

 private:
  struct Record;
  [[nodiscard]] std::string describe(const Record& record) const;

  std::unique_ptr<Communicator> own_;
  std::function<std::int64_t()> step_;
  std::vector<std::string> hosts_;
  std::vector<std::string> names_;
  std::int64_t calls_ = 0;
};

/// Another communicator, each of whose collectives is compared before it is made.
class CheckedCommunicator final : public ForwardingCommunicator {
 public:
  /// Both outlive it. `name`: "the host's", as errors call it.
  CheckedCommunicator(Communicator& inner, CollectiveComparison& comparison,
                      const std::string& name)
      : ForwardingCommunicator(inner),
        comparison_(comparison),
        communicator_(comparison.add(name)) {}

 private:
  void begin(const CollectiveCall& call) override { comparison_.compare(call, communicator_); }
  void before_start(const CollectiveCall& call) override { begin(call); }

  CollectiveComparison& comparison_;
  int communicator_;
};

}  // namespace lockstep
