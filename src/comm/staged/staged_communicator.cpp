#include "lockstep/comm/staged_communicator.hpp"

#include "../backoff.hpp"
#include "../cuda_calls.hpp"
#include "../processor_name.hpp"
#include "lockstep/comm/element_size.hpp"
#include "staging_queue.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

namespace lockstep {
namespace {

std::size_t bytes_of(const MutableBuffer& buffer) noexcept {
  return buffer.count * size_of(buffer.type);
}

const char* name_of(CollectiveKind kind) noexcept {
  switch (kind) {
    case CollectiveKind::started_reduce_scatter:
      return "a reduce-scatter through the host";
    case CollectiveKind::started_all_gather:
      return "an all-gather through the host";
    case CollectiveKind::send:
      return "a send through the host";
    case CollectiveKind::receive:
      return "a receive through the host";
    default:
      return "an all-reduce through the host";
  }
}

class StagedCommunicator final : public DeviceCommunicator {
 public:
  StagedCommunicator(CudaApi& api, std::unique_ptr<Communicator> host, CudaStream compute,
                     const StagedCommunicatorOptions& options)
      : api_(api),
        host_(std::move(host)),
        options_(options),
        cuda_(api,
              fmt::format("rank {} ({})", options_.rank.value_or(host_->rank()), processor_name())),
        compute_(compute),
        copied_(cuda_.make_event()),
        queue_(cuda_, *host_, compute, options.progress) {}

  [[nodiscard]] int rank() const noexcept override { return host_->rank(); }
  [[nodiscard]] int size() const noexcept override { return host_->size(); }

  void barrier() override {
    begin_all();
    host_->barrier();
  }
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    block_on(start_all_reduce_buffer(buffer, op));
  }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    if (buffer.count == 0) return;
    const MutableBuffer staged = stage(first_, buffer.count, buffer.type);
    if (rank() == root) fetch(staged, buffer.data);
    begin_all();
    host_->broadcast_buffer(staged, root);
    if (rank() != root) deliver(staged, buffer.data);
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    block_on(start_all_gather_buffer(mine, all));
  }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    if (mine.count == 0) return;
    const bool here = rank() == root;
    const MutableBuffer from = stage(first_, mine.count, mine.type);
    const MutableBuffer to = stage(second_, here ? all.count : 0, mine.type);
    fetch(from, mine.data);
    begin_all();
    host_->gather_buffer({from.data, from.count, from.type}, to, root);
    if (here) deliver(to, all.data);
  }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    if (mine.count == 0) return;
    const bool here = rank() == root;
    const MutableBuffer from = stage(first_, here ? all.count : 0, mine.type);
    const MutableBuffer to = stage(second_, mine.count, mine.type);
    if (here) fetch(from, all.data);
    begin_all();
    host_->scatter_buffer({from.data, from.count, from.type}, to, root);
    deliver(to, mine.data);
  }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    block_on(start_reduce_scatter_buffer(all, mine, op));
  }

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    return start({.kind = CollectiveKind::started_all_reduce,
                  .from = {buffer.data, buffer.count, buffer.type, buffer.owner},
                  .to = buffer,
                  .op = op});
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    return start(
        {.kind = CollectiveKind::started_reduce_scatter, .from = all, .to = mine, .op = op});
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    return start({.kind = CollectiveKind::started_all_gather, .from = mine, .to = all});
  }
  [[nodiscard]] Request start_send_buffer(ConstBuffer buffer, int to) override {
    require_peer(to);
    return start({.kind = CollectiveKind::send, .from = std::move(buffer), .peer = to});
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer buffer, int from) override {
    require_peer(from);
    return start({.kind = CollectiveKind::receive, .to = std::move(buffer), .peer = from});
  }
  bool test(Request& request) override {
    queue_.advance();
    if (request.done()) return true;
    const auto transfer = static_cast<std::size_t>(request.slot);
    if (!queue_.is_back(transfer)) return false;
    queue_.release(transfer);
    request.slot = -1;
    return true;
  }
  void wait(Request& request) override {
    if (request.done()) return;
    const auto transfer = static_cast<std::size_t>(request.slot);
    await([&] { return queue_.is_returning(transfer); }, name_of(queue_.kind(transfer)));
    queue_.order_compute_after(transfer);
    queue_.release(transfer);
    request.slot = -1;
  }

  void check() override { queue_.advance(); }
  void synchronize() override {
    await([&] { return cuda_.is_idle(compute_); }, "the compute stream");
  }
  void synchronize_until(FunctionRef<bool()> reached) override {
    await(
        [&] {
          static_cast<void>(cuda_.is_idle(compute_));  // throws if work in the stream has failed
          return reached();
        },
        "the work of a step");
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    begin_all();
    StagedCommunicatorOptions options = options_;
    options.rank = options_.rank.value_or(rank());
    return make_staged_communicator(api_, host_->split(color, key), compute_, options);
  }

 private:
  [[nodiscard]] Request start(const StagingQueue::Work& work) {
    if (work.from.count + work.to.count == 0) return {};
    if (cuda_.is_capturing(compute_)) {
      fail(ExitStatus::internal,
           "a step was to be captured on {} (its collectives go through the host); run it without "
           "a graph",
           cuda_.who());
    }
    const Request request{.slot = static_cast<int>(queue_.start(work))};
    queue_.advance();
    return request;
  }
  void block_on(Request request) {
    wait(request);
    synchronize();
  }

  /// Pinned memory for blocking collectives; grows to the largest one.
  struct Stage {
    PinnedMemory memory;
    std::size_t capacity = 0;
  };

  [[nodiscard]] MutableBuffer stage(Stage& stage, std::size_t count, ElementType type) {
    const std::size_t bytes = count * size_of(type);
    if (stage.capacity < bytes) {
      stage.memory = cuda_.make_pinned(bytes);
      stage.capacity = bytes;
    }
    return {stage.memory.get(), count, type};
  }
  /// Copies in the compute stream itself, which gives the required order.
  void fetch(MutableBuffer to, const void* from) {
    cuda_.copy_to_host(to.data, from, bytes_of(to), compute_);
    await_copy();
  }
  void deliver(MutableBuffer from, void* to) {
    cuda_.copy_to_device(to, from.data, bytes_of(from), compute_);
    await_copy();
  }
  void await_copy() {
    cuda_.record(copied_, compute_);
    await([&] { return cuda_.is_done(copied_); }, "a copy between host and device");
  }
  /// Waits until all started collectives have begun on the host. All ranks must call the host's
  /// collectives in program order, so these precede a blocking one.
  void begin_all() {
    await([&] { return queue_.all_have_begun(); }, "the copies of started collectives");
  }
  template <typename Condition>
  void await(Condition&& is_met, const char* what) {
    const DeviceWait wait(options_.progress);
    for (Backoff backoff(options_.wait_limit);;) {
      queue_.advance();
      if (is_met()) return;
      if (!backoff.pause()) {
        fail(ExitStatus::internal,
             "{} did not end on {} within {} s (another rank does not take part, or a device "
             "hangs); look into the other ranks' logs and submit the job again",
             what, cuda_.who(), backoff.limit_seconds());
      }
    }
  }

  CudaApi& api_;
  std::unique_ptr<Communicator> host_;
  StagedCommunicatorOptions options_;
  CudaCalls cuda_;
  CudaStream compute_;
  EventHandle copied_;
  Stage first_;
  Stage second_;
  StagingQueue queue_;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> make_staged_communicator(CudaApi& api,
                                                             std::unique_ptr<Communicator> host,
                                                             CudaStream compute,
                                                             StagedCommunicatorOptions options) {
  return std::make_unique<StagedCommunicator>(api, std::move(host), compute, options);
}

}  // namespace lockstep
