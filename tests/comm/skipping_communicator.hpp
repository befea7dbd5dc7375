#pragma once

#include "lockstep/comm/communicator.hpp"

namespace lockstep::test {

/// Leaves out one of the reductions that are started, as a rank with a fault would.
class SkippingCommunicator final : public Communicator {
 public:
  /// `skipped` counts from 0; -1: none.
  SkippingCommunicator(Communicator& inner, int skipped) : inner_(inner), skipped_(skipped) {}

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }
  void barrier() override { inner_.barrier(); }
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    inner_.all_reduce_buffer(buffer, op);
  }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    inner_.broadcast_buffer(buffer, root);
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    inner_.all_gather_buffer(mine, all);
  }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    inner_.gather_buffer(mine, all, root);
  }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    inner_.scatter_buffer(all, mine, root);
  }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    inner_.reduce_scatter_buffer(all, mine, op);
  }
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    if (skipped_-- == 0) return {};
    return inner_.start_all_reduce_buffer(buffer, op);
  }
  bool test(Request& request) override { return inner_.test(request); }
  void wait(Request& request) override {
    if (!request.done()) inner_.wait(request);
  }

 private:
  Communicator& inner_;
  int skipped_;
};

}  // namespace lockstep::test
