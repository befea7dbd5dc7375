#include "lockstep/comm/forwarding_communicator.hpp"

namespace lockstep {

/// Calls begin() and end() around a blocking collective.
class ForwardingCommunicator::Blocking final {
 public:
  Blocking(ForwardingCommunicator& owner, const CollectiveCall& call) : owner_(owner) {
    owner_.begin(call);
  }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;
  ~Blocking() { owner_.end(); }

 private:
  ForwardingCommunicator& owner_;
};

void ForwardingCommunicator::barrier() {
  const Blocking blocking(*this, {.kind = CollectiveKind::barrier});
  inner_.barrier();
}

void ForwardingCommunicator::all_reduce_buffer(MutableBuffer buffer, ReduceOp op) {
  const Blocking blocking(
      *this,
      {.kind = CollectiveKind::all_reduce, .count = buffer.count, .type = buffer.type, .op = op});
  inner_.all_reduce_buffer(buffer, op);
}

void ForwardingCommunicator::broadcast_buffer(MutableBuffer buffer, int root) {
  const Blocking blocking(*this, {.kind = CollectiveKind::broadcast,
                                  .count = buffer.count,
                                  .type = buffer.type,
                                  .root = root});
  inner_.broadcast_buffer(buffer, root);
}

void ForwardingCommunicator::all_gather_buffer(ConstBuffer mine, MutableBuffer all) {
  const Blocking blocking(
      *this, {.kind = CollectiveKind::all_gather, .count = mine.count, .type = mine.type});
  inner_.all_gather_buffer(mine, all);
}

void ForwardingCommunicator::gather_buffer(ConstBuffer mine, MutableBuffer all, int root) {
  const Blocking blocking(
      *this,
      {.kind = CollectiveKind::gather, .count = mine.count, .type = mine.type, .root = root});
  inner_.gather_buffer(mine, all, root);
}

void ForwardingCommunicator::scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) {
  const Blocking blocking(
      *this,
      {.kind = CollectiveKind::scatter, .count = mine.count, .type = mine.type, .root = root});
  inner_.scatter_buffer(all, mine, root);
}

void ForwardingCommunicator::reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                   ReduceOp op) {
  const Blocking blocking(
      *this,
      {.kind = CollectiveKind::reduce_scatter, .count = mine.count, .type = mine.type, .op = op});
  inner_.reduce_scatter_buffer(all, mine, op);
}

template <typename Start>
Request ForwardingCommunicator::starting(const CollectiveCall& call, Start&& start) {
  before_start(call);
  Request request;
  try {
    request = start();
  } catch (...) {
    after_start(call.kind, request);  // which is done: nothing is in flight
    throw;
  }
  after_start(call.kind, request);
  return request;
}

Request ForwardingCommunicator::start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) {
  return starting({.kind = CollectiveKind::started_all_reduce,
                   .count = buffer.count,
                   .type = buffer.type,
                   .op = op},
                  [&] { return inner_.start_all_reduce_buffer(buffer, op); });
}

Request ForwardingCommunicator::start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                            ReduceOp op) {
  return starting({.kind = CollectiveKind::started_reduce_scatter,
                   .count = mine.count,
                   .type = mine.type,
                   .op = op},
                  [&] { return inner_.start_reduce_scatter_buffer(all, mine, op); });
}

Request ForwardingCommunicator::start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) {
  return starting(
      {.kind = CollectiveKind::started_all_gather, .count = mine.count, .type = mine.type},
      [&] { return inner_.start_all_gather_buffer(mine, all); });
}

Request ForwardingCommunicator::start_send_buffer(ConstBuffer buffer, int to) {
  return starting(
      {.kind = CollectiveKind::send, .count = buffer.count, .type = buffer.type, .root = to},
      [&] { return inner_.start_send_buffer(buffer, to); });
}

Request ForwardingCommunicator::start_receive_buffer(MutableBuffer buffer, int from) {
  return starting(
      {.kind = CollectiveKind::receive, .count = buffer.count, .type = buffer.type, .root = from},
      [&] { return inner_.start_receive_buffer(buffer, from); });
}

std::unique_ptr<Communicator> ForwardingCommunicator::split(int color, int key) {
  const Blocking blocking(*this, {.kind = CollectiveKind::split});
  return inner_.split(color, key);
}

}  // namespace lockstep
