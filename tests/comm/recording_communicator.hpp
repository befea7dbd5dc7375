#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::test {

/// Records the calls that all ranks must make in the same order. MPI requires that order, but Open
/// MPI does not notice if a blocking and a nonblocking collective are swapped.
class RecordingCommunicator final : public ForwardingCommunicator {
 public:
  /// `calls` must outlive this object. Each call appends its kind and its count.
  RecordingCommunicator(std::unique_ptr<Communicator> inner, std::vector<std::int64_t>& calls)
      : ForwardingCommunicator(*inner), owned_(std::move(inner)), calls_(calls) {}

 private:
  void begin(const CollectiveCall& call) override { note(call); }
  void before_start(const CollectiveCall& call) override { note(call); }
  void note(const CollectiveCall& call) {
    calls_.push_back(static_cast<std::int64_t>(call.kind));
    calls_.push_back(static_cast<std::int64_t>(call.count));
  }

  std::unique_ptr<Communicator> owned_;
  std::vector<std::int64_t>& calls_;
};

}  // namespace lockstep::test
