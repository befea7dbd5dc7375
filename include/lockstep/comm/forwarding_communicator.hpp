#pragma once

#include "lockstep/comm/collective.hpp"
#include "lockstep/comm/communicator.hpp"

#include <cstddef>
#include <memory>

namespace lockstep {

/// Parameters of a call.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::none;
  std::size_t count = 0;  ///< values per rank
  ElementType type = ElementType::u8;
  ReduceOp op = ReduceOp::sum;
  int root = 0;  ///< of a message: the other rank
};

/// Base of decorators: forwards every call to another communicator. A split makes a communicator
/// that is not decorated.
class ForwardingCommunicator : public Communicator {
 public:
  /// `inner` must outlive it.
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }
  void barrier() final;
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) final;
  void broadcast_buffer(MutableBuffer buffer, int root) final;
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) final;
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) final;
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) final;
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) final;
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override;
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override;
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override;
  [[nodiscard]] Request start_send_buffer(ConstBuffer buffer, int to) override;
  [[nodiscard]] Request start_receive_buffer(MutableBuffer buffer, int from) override;
  bool test(Request& request) override { return inner_.test(request); }
  void wait(Request& request) override { inner_.wait(request); }
  void synchronize() override { inner_.synchronize(); }
  void synchronize_until(FunctionRef<bool()> reached) override {
    inner_.synchronize_until(reached);
  }
  void register_memory(const RegisteredMemory& memory) override { inner_.register_memory(memory); }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) final;

 protected:
  [[nodiscard]] Communicator& inner() noexcept { return inner_; }
  /// Called before and after each blocking collective; end() also if the collective throws.
  virtual void begin(const CollectiveCall& /*call*/) {}
  virtual void end() noexcept {}
  /// Called before and after each nonblocking collective or message is started; after_start() also
  /// if the start throws, with a request that is done.
  virtual void before_start(const CollectiveCall& /*call*/) {}
  virtual void after_start(CollectiveKind /*kind*/, const Request& /*request*/) {}

 private:
  class Blocking;
  template <typename Start>
  [[nodiscard]] Request starting(const CollectiveCall& call, Start&& start);
  Communicator& inner_;
};

}  // namespace lockstep
