#pragma once

#include "comm/stand_in_queues.hpp"
#include "lockstep/comm/device_communicator.hpp"

#include <memory>
#include <utility>

namespace lockstep::test {

/// Adapts a device's communicator to tests that use host memory: passes each buffer by its device
/// address.
class OnDevice final : public DeviceCommunicator {
 public:
  /// What wait() waits for.
  enum class Wait {
    synchronized,  ///< the host can read the result
    ordered        ///< work that is queued later can read the result
  };
  explicit OnDevice(DeviceCommunicator& inner, Wait wait = Wait::synchronized)
      : inner_(inner), wait_(wait) {}
  /// Owns `inner`.
  OnDevice(std::unique_ptr<DeviceCommunicator> inner, Wait wait)
      : owned_(std::move(inner)), inner_(*owned_), wait_(wait) {}

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }
  void barrier() override { inner_.barrier(); }
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    inner_.all_reduce_buffer(there(buffer), op);
  }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    inner_.broadcast_buffer(there(buffer), root);
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    inner_.all_gather_buffer(there(mine), there(all));
  }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    inner_.gather_buffer(there(mine), there(all), root);
  }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    inner_.scatter_buffer(there(all), there(mine), root);
  }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    inner_.reduce_scatter_buffer(there(all), there(mine), op);
  }
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    return inner_.start_all_reduce_buffer(there(buffer), op);
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    return inner_.start_reduce_scatter_buffer(there(all), there(mine), op);
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    return inner_.start_all_gather_buffer(there(mine), there(all));
  }
  [[nodiscard]] Request start_send_buffer(ConstBuffer buffer, int to) override {
    return inner_.start_send_buffer(there(buffer), to);
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer buffer, int from) override {
    return inner_.start_receive_buffer(there(buffer), from);
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    auto part = inner_.split(color, key);
    return std::make_unique<OnDevice>(
        std::unique_ptr<DeviceCommunicator>(&dynamic_cast<DeviceCommunicator&>(*part.release())),
        wait_);
  }
  bool test(Request& request) override { return inner_.test(request); }
  void wait(Request& request) override {
    inner_.wait(request);
    if (wait_ == Wait::synchronized) inner_.synchronize();
  }
  void check() override { inner_.check(); }
  void synchronize() override { inner_.synchronize(); }
  void synchronize_until(FunctionRef<bool()> reached) override {
    inner_.synchronize_until(reached);
  }
  void register_memory(const RegisteredMemory& memory) override {
    auto* const data = static_cast<std::byte*>(device_address(memory.bytes.data()));
    inner_.register_memory({.bytes = {data, memory.bytes.size()},
                            .owner = memory.owner,
                            .symmetric = memory.symmetric});
  }

 private:
  static MutableBuffer there(MutableBuffer buffer) noexcept {
    return {device_address(buffer.data), buffer.count, buffer.type, std::move(buffer.owner)};
  }
  static ConstBuffer there(ConstBuffer buffer) noexcept {
    return {device_address(buffer.data), buffer.count, buffer.type, std::move(buffer.owner)};
  }

  std::unique_ptr<DeviceCommunicator> owned_;  ///< may be null
  DeviceCommunicator& inner_;
  Wait wait_;
};

}  // namespace lockstep::test
