#include "lockstep/comm/self_communicator.hpp"

#include "lockstep/comm/element_size.hpp"

#include <cassert>
#include <cstring>

namespace lockstep {
namespace {

void copy(ConstBuffer from, MutableBuffer to) noexcept {
  assert(from.count == to.count && from.type == to.type);
  if (from.count > 0) std::memmove(to.data, from.data, from.count * size_of(from.type));
}

class SelfCommunicator final : public Communicator {
 public:
  [[nodiscard]] int rank() const noexcept override { return 0; }
  [[nodiscard]] int size() const noexcept override { return 1; }
  void barrier() override {}
  void all_reduce_buffer(MutableBuffer, ReduceOp) override {}
  void broadcast_buffer(MutableBuffer, int) override {}
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override { copy(mine, all); }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int) override { copy(mine, all); }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int) override { copy(all, mine); }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp) override {
    copy(all, mine);
  }
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer, ReduceOp) override { return {}; }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp) override {
    copy(all, mine);
    return {};
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    copy(mine, all);
    return {};
  }
  [[nodiscard]] Request start_send_buffer(ConstBuffer, int to) override {
    require_peer(to);
    return {};
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer, int from) override {
    require_peer(from);
    return {};
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int, int) override {
    return make_self_communicator();
  }
  bool test(Request& request) override {
    request.slot = -1;
    return true;
  }
  void wait(Request& request) override { request.slot = -1; }
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<SelfCommunicator>();
}

}  // namespace lockstep
