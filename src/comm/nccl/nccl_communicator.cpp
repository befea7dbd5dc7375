#include "lockstep/comm/nccl_communicator.hpp"

#include "../backoff.hpp"
#include "../keep_until_exit.hpp"
#include "../slot_pool.hpp"
#include "lockstep/comm/element_size.hpp"
#include "lockstep/core/current_error.hpp"
#include "nccl_group.hpp"
#include "nccl_links.hpp"
#include "split_ranks.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>

namespace lockstep {
namespace {

class NcclCommunicator final : public DeviceCommunicator {
 public:
  /// The link may start later.
  NcclCommunicator(NcclApi& api, std::shared_ptr<NcclLinks> links, NcclLink& link,
                   CudaStream compute)
      : api_(api),
        links_(std::move(links)),
        link_(link),
        cuda_(links_->cuda()),
        compute_(compute),
        progress_(links_->options().progress),
        blocking_(make_events()) {}
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override {
    links_->end(link_);
    if (!links_->is_aborted_amid_work()) return;
    // Freeing device memory waits for the device, which may hang.
    slots_.for_each([](Started& started) {
      for (MemoryOwner& owner : started.owners) keep_until_exit(std::move(owner));
    });
  }

  [[nodiscard]] int rank() const noexcept override { return link_.rank(); }
  [[nodiscard]] int size() const noexcept override { return link_.size(); }

  void barrier() override { all_reduce_buffer(token(), ReduceOp::max); }

  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    block_on(buffer.count, "ncclAllReduce", [&] { return all_reduce(buffer, op); });
  }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    block_on(buffer.count, "ncclBroadcast", [&] {
      return api_.broadcast(buffer.data, buffer.data, buffer.count, buffer.type, root, link_.get(),
                            links_->stream());
    });
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    block_on(mine.count, "ncclAllGather", [&] { return all_gather(mine, all); });
  }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    block_on(mine.count, "ncclReduceScatter", [&] { return reduce_scatter(all, mine, op); });
  }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    block_on(mine.count, "a gather of ncclSend and ncclRecv", [&] {
      NcclGroup group(api_);
      group.add(api_.send(mine.data, mine.count, mine.type, root, link_.get(), links_->stream()));
      for_each_block(static_cast<std::byte*>(all.data), mine, root, [&](void* block, int peer) {
        group.add(api_.recv(block, mine.count, mine.type, peer, link_.get(), links_->stream()));
      });
      return group.end();
    });
  }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    block_on(mine.count, "a scatter of ncclSend and ncclRecv", [&] {
      NcclGroup group(api_);
      for_each_block(
          static_cast<const std::byte*>(all.data), mine, root, [&](const void* block, int peer) {
            group.add(api_.send(block, mine.count, mine.type, peer, link_.get(), links_->stream()));
          });
      group.add(api_.recv(mine.data, mine.count, mine.type, root, link_.get(), links_->stream()));
      return group.end();
    });
  }

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    return start(buffer, {buffer.owner}, "ncclAllReduce", [&] { return all_reduce(buffer, op); });
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    return start(mine, {all.owner, mine.owner}, "ncclReduceScatter",
                 [&] { return reduce_scatter(all, mine, op); });
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    return start(all, {mine.owner, all.owner}, "ncclAllGather",
                 [&] { return all_gather(mine, all); });
  }
  [[nodiscard]] Request start_send_buffer(ConstBuffer buffer, int to) override {
    return start_message(buffer, to);
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer buffer, int from) override {
    return start_message(buffer, from);
  }
  bool test(Request& request) override {
    if (request.done()) return true;
    return guarded([&] {
      // A captured collective runs later, and an event query would invalidate the capture.
      if (cuda_.is_capturing(compute_) || !cuda_.is_done(events(request).finished)) {
        links_->check();
        return false;
      }
      links_->marks().poll();
      release(request);
      return true;
    });
  }
  void wait(Request& request) override {
    if (request.done()) return;
    guarded([&] {
      cuda_.order_after(compute_, events(request).finished);
      release(request);
    });
  }

  void check() override {
    guarded([&] { links_->check(); });
  }
  void synchronize() override {
    guarded([&] {
      await([&] { return cuda_.is_idle(links_->stream()); }, "the collectives");
      await([&] { return cuda_.is_idle(compute_); }, "the compute stream");
      links_->check();
    });
  }
  void synchronize_until(FunctionRef<bool()> reached) override {
    guarded([&] {
      await(
          [&] {
            static_cast<void>(cuda_.is_idle(compute_));  // throws if work in the stream has failed
            return reached();
          },
          "the work of a step");
      links_->check();
    });
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    synchronize();
    return guarded([&]() -> std::unique_ptr<Communicator> {
      std::vector<int> part = split_ranks(gather_splits({color, key}), color);
      for (int& rank : part) rank = link_.ranks()[static_cast<std::size_t>(rank)];
      return std::make_unique<NcclCommunicator>(api_, links_, links_->split(link_, std::move(part)),
                                                compute_);
    });
  }
  void register_memory(const RegisteredMemory& memory) override {
    if (memory.bytes.empty()) return;
    guarded([&] {
      link_.keep(memory);
      if (memory.symmetric && links_->options().settings.windows) {
        links_->settle(link_, link_.register_window(), "ncclCommWindowRegister");
        // Ranks with a window and ranks without would run different kernels.
        if (holds_on_all_ranks(link_.has_window())) return;
        links_->settle(link_, link_.drop_window(), "ncclCommWindowDeregister");
      }
      links_->settle(link_, link_.register_memory(), "ncclCommRegister");
    });
  }

 private:
  using Events = NcclLinks::Events;
  struct Started {
    std::unique_ptr<Events> events;          ///< at an address of its own, for flush()
    std::array<MemoryOwner, 2> owners = {};  ///< until test() or wait() ends the request
  };
  [[nodiscard]] Events make_events() const {
    return {.ready = cuda_.make_event(), .finished = cuda_.make_event()};
  }
  [[nodiscard]] MutableBuffer token() const noexcept {
    return {links_->token(), 1, ElementType::u8};
  }
  /// Collective.
  [[nodiscard]] bool holds_on_all_ranks(bool holds) {
    flag_ = holds ? 1 : 0;
    cuda_.copy_to_device(token().data, &flag_, 1, compute_);
    all_reduce_buffer(token(), ReduceOp::min);
    cuda_.copy_to_host(&flag_, token().data, 1, compute_);
    await([&] { return cuda_.is_idle(compute_); }, "the compute stream");
    return flag_ != 0;
  }
  /// All ranks' arguments of a split; collective.
  [[nodiscard]] std::vector<SplitOf> gather_splits(SplitOf mine) {
    static_assert(sizeof(SplitOf) == 2 * sizeof(std::int32_t));
    std::vector<SplitOf> all(static_cast<std::size_t>(size()));
    void* memory = nullptr;  // kept after an error: freeing it waits for the device, which may hang
    cuda_.check(api_.device_allocate(&memory, all.size() * sizeof(mine)), "cudaMalloc");
    auto* const own = static_cast<SplitOf*>(memory) + rank();
    cuda_.copy_to_device(own, &mine, sizeof(mine), compute_);
    all_gather_buffer({own, 2, ElementType::i32}, {memory, 2 * all.size(), ElementType::i32});
    cuda_.copy_to_host(all.data(), memory, all.size() * sizeof(mine), compute_);
    await([&] { return cuda_.is_idle(compute_); }, "the compute stream");
    api_.device_release(memory);
    return all;
  }
  [[nodiscard]] Events& events(const Request& request) noexcept {
    return *slots_[static_cast<std::size_t>(request.slot)].events;
  }
  void release(Request& request) noexcept {
    const auto slot = static_cast<std::size_t>(request.slot);
    slots_[slot].owners = {};
    slots_.give_back(slot);
    request.slot = -1;
  }
  [[nodiscard]] NcclResult all_reduce(MutableBuffer buffer, ReduceOp op) {
    return api_.all_reduce(buffer.data, buffer.data, buffer.count, buffer.type, op, link_.get(),
                           links_->stream());
  }
  [[nodiscard]] NcclResult reduce_scatter(ConstBuffer all, MutableBuffer mine, ReduceOp op) {
    return api_.reduce_scatter(all.data, mine.data, mine.count, mine.type, op, link_.get(),
                               links_->stream());
  }
  [[nodiscard]] NcclResult all_gather(ConstBuffer mine, MutableBuffer all) {
    return api_.all_gather(mine.data, all.data, mine.count, mine.type, link_.get(),
                           links_->stream());
  }

  /// Queues the messages that have been started, unless `work` only starts another. Aborts NCCL if
  /// it throws, so that no NCCL kernel waits forever for a peer.
  template <typename Work>
  std::invoke_result_t<Work> guarded(Work&& work, bool flushes = true) {
    if (links_->is_aborted()) {
      fail(ExitStatus::internal,
           "NCCL was asked for more on {} (it was aborted after an earlier error); end the process",
           cuda_.who());
    }
    try {
      if (flushes) links_->flush();
      return work();
    } catch (...) {
      links_->abort();
      throw;
    }
  }
  /// Queues a collective after the work in the compute stream and records `events.finished`.
  template <typename Call>
  void queue(const Events& events, const char* name, Call&& call) {
    cuda_.record(events.ready, compute_);
    cuda_.order_after(links_->stream(), events.ready);
    // A captured collective runs later, any number of times.
    const bool counts = progress_ != nullptr && !cuda_.is_capturing(compute_);
    if (counts) links_->marks().begin(links_->stream());
    links_->settle(link_, call(), name);
    if (counts) links_->marks().end(links_->stream());
    cuda_.record(events.finished, links_->stream());
  }
  /// `result`: the output buffer.
  template <typename Call>
  [[nodiscard]] Request start(const MutableBuffer& result, std::array<MemoryOwner, 2> owners,
                              const char* name, Call&& call) {
    if (result.count == 0) return {};
    return guarded([&]() -> Request {
      const std::size_t slot = take_slot(result.data, std::move(owners));
      queue(*slots_[slot].events, name, call);
      return {.slot = static_cast<int>(slot)};
    });
  }
  [[nodiscard]] std::size_t take_slot(const void* buffer, std::array<MemoryOwner, 2> owners) {
    const std::size_t slot = slots_.take(
        buffer, [&] { return Started{.events = std::make_unique<Events>(make_events())}; },
        [](const Started&) { return true; });
    slots_[slot].owners = std::move(owners);
    return slot;
  }
  /// Sends a ConstBuffer or receives a MutableBuffer.
  template <typename Buffer>
  [[nodiscard]] Request start_message(const Buffer& buffer, int peer) {
    require_peer(peer);
    if (buffer.count == 0) return {};
    return guarded(
        [&]() -> Request {
          const std::size_t slot = take_slot(buffer.data, {buffer.owner});
          const Events& events = *slots_[slot].events;
          cuda_.record(events.ready, compute_);
          links_->add({.link = &link_,
                       .sends = std::is_same_v<Buffer, ConstBuffer>,
                       .data = const_cast<void*>(buffer.data),
                       .count = buffer.count,
                       .type = buffer.type,
                       .peer = peer,
                       .events = &events});
          return {.slot = static_cast<int>(slot)};
        },
        false);
  }
  template <typename Call>
  void block_on(std::size_t count, const char* name, Call&& call) {
    if (count == 0) return;
    guarded([&] {
      queue(blocking_, name, call);
      cuda_.order_after(compute_, blocking_.finished);
      await([&] { return cuda_.is_done(blocking_.finished); }, name);
      links_->check();
    });
  }
  /// On the root: visits each rank's block of `all`.
  template <typename Byte, typename Buffer, typename Visit>
  void for_each_block(Byte* all, const Buffer& mine, int root, Visit&& visit) const {
    const std::size_t bytes = mine.count * size_of(mine.type);
    for (int peer = 0; rank() == root && peer < size(); ++peer) {
      visit(all + static_cast<std::size_t>(peer) * bytes, peer);
    }
  }
  template <typename Condition>
  void await(Condition&& is_met, const char* what) {
    const DeviceWait wait(progress_);
    for (Backoff backoff(links_->options().wait_limit); !is_met();) {
      links_->marks().poll();
      links_->check();
      if (!backoff.pause()) {
        fail(ExitStatus::internal,
             "{} did not end on {} within {} s ({} does not take part, or a device hangs); look "
             "into the other ranks' logs and submit the job again",
             what, cuda_.who(), backoff.limit_seconds(), link_.another());
      }
    }
    links_->marks().poll();
  }

  NcclApi& api_;
  std::shared_ptr<NcclLinks> links_;
  NcclLink& link_;
  const CudaCalls& cuda_;
  CudaStream compute_;
  DeviceProgress* progress_;
  std::uint8_t flag_ = 0;  ///< copied to the device and back
  Events blocking_;
  SlotPool<Started> slots_;
};

}  // namespace

std::chrono::milliseconds nccl_start_limit(int ranks) noexcept {
  using namespace std::chrono_literals;
  return std::min<std::chrono::milliseconds>(5min + ranks * 100ms, 20min);
}

std::vector<std::unique_ptr<DeviceCommunicator>> make_nccl_communicators(
    NcclApi& api, Rendezvous& rendezvous, CudaStream compute,
    std::span<const std::vector<int>> sets, const NcclCommunicatorOptions& options) {
  std::shared_ptr<NcclLinks> links;
  std::vector<std::unique_ptr<DeviceCommunicator>> communicators;
  try {
    links = std::make_shared<NcclLinks>(api, rendezvous, sets, options);
    for (std::size_t i = 0; i < sets.size(); ++i) {
      communicators.push_back(std::make_unique<NcclCommunicator>(api, links, (*links)[i], compute));
    }
  } catch (...) {
    NcclLinks::report(rendezvous, options, current_error());
    throw;
  }
  links->start(rendezvous);
  return communicators;
}

std::unique_ptr<DeviceCommunicator> make_nccl_communicator(NcclApi& api, Rendezvous& rendezvous,
                                                           CudaStream compute,
                                                           const NcclCommunicatorOptions& options) {
  std::vector<int> all(static_cast<std::size_t>(rendezvous.size()));
  std::iota(all.begin(), all.end(), 0);
  return std::move(
      make_nccl_communicators(api, rendezvous, compute, std::span(&all, 1), options).front());
}

}  // namespace lockstep
