#pragma once

#include "lockstep/comm/communicator.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::test {

/// Records the calls that all ranks must make in the same order. MPI requires that order, but Open
/// MPI does not notice if a blocking and a nonblocking collective are swapped.
class RecordingCommunicator final : public Communicator {
 public:
  /// `calls` must outlive this object. Each call appends a number for its kind, and its count.
  RecordingCommunicator(std::unique_ptr<Communicator> inner, std::vector<std::int64_t>& calls)
      : inner_(std::move(inner)), calls_(calls) {}

  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }
  void barrier() override {
    note(1, 0);
    inner_->barrier();
  }
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    note(2, buffer.count);
    inner_->all_reduce_buffer(buffer, op);
  }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    note(3, buffer.count);
    inner_->broadcast_buffer(buffer, root);
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    note(4, mine.count);
    inner_->all_gather_buffer(mine, all);
  }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    note(5, mine.count);
    inner_->gather_buffer(mine, all, root);
  }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    note(6, mine.count);
    inner_->scatter_buffer(all, mine, root);
  }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    note(7, mine.count);
    inner_->reduce_scatter_buffer(all, mine, op);
  }
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    note(8, buffer.count);
    return inner_->start_all_reduce_buffer(buffer, op);
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    note(9, mine.count);
    return inner_->start_reduce_scatter_buffer(all, mine, op);
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    note(10, mine.count);
    return inner_->start_all_gather_buffer(mine, all);
  }
  [[nodiscard]] Request start_send_buffer(ConstBuffer buffer, int to) override {
    note(11, buffer.count);
    return inner_->start_send_buffer(buffer, to);
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer buffer, int from) override {
    note(12, buffer.count);
    return inner_->start_receive_buffer(buffer, from);
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    note(13, 0);
    return inner_->split(color, key);
  }
  bool test(Request& request) override { return inner_->test(request); }
  void wait(Request& request) override { inner_->wait(request); }

 private:
  void note(std::int64_t kind, std::size_t count) {
    calls_.push_back(kind);
    calls_.push_back(static_cast<std::int64_t>(count));
  }

  std::unique_ptr<Communicator> inner_;
  std::vector<std::int64_t>& calls_;
};

}  // namespace lockstep::test
