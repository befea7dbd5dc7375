#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"

namespace lockstep::test {

/// Skips one reduction, like a faulty rank.
class SkippingCommunicator final : public ForwardingCommunicator {
 public:
  /// `skipped` counts from 0; -1: none.
  SkippingCommunicator(Communicator& inner, int skipped)
      : ForwardingCommunicator(inner), skipped_(skipped) {}

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    if (skipped_-- == 0) return {};
    return inner().start_all_reduce_buffer(buffer, op);
  }
  void wait(Request& request) override {
    if (!request.done()) inner().wait(request);
  }

 private:
  int skipped_;
};

}  // namespace lockstep::test
