#include "lockstep/comm/shared_memory_communicator.hpp"

#include "exchange_progress.hpp"
#include "lockstep/comm/element_size.hpp"
#include "piece_exchange.hpp"
#include "shared_segment.hpp"
#include "window_bytes.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

bool adds_up(ElementType type, ReduceOp op) {
  return op == ReduceOp::sum &&
         (type == ElementType::f32 || type == ElementType::bf16 || type == ElementType::f16);
}

const std::byte* bytes_of(ConstBuffer buffer) {
  return static_cast<const std::byte*>(buffer.data);
}
std::byte* bytes_of(MutableBuffer buffer) {
  return static_cast<std::byte*>(buffer.data);
}

class SharedMemoryCommunicator final : public Communicator {
 public:
  SharedMemoryCommunicator(Communicator& inner, std::unique_ptr<SharedSegment> segment,
                           std::size_t window)
      : inner_(inner),
        segment_(std::move(segment)),
        exchange_({.counters = segment_->common(), .windows = segment_->parts(), .window = window},
                  inner.rank(), inner.size()) {
    ExchangeProgress::join(exchange_);
  }
  SharedMemoryCommunicator(const SharedMemoryCommunicator&) = delete;
  SharedMemoryCommunicator& operator=(const SharedMemoryCommunicator&) = delete;
  ~SharedMemoryCommunicator() override { ExchangeProgress::leave(exchange_); }

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }

  void barrier() override { inner_.barrier(); }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    inner_.broadcast_buffer(buffer, root);
  }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    inner_.gather_buffer(mine, all, root);
  }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    inner_.scatter_buffer(all, mine, root);
  }
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    if (!adds_up(buffer.type, op)) return inner_.all_reduce_buffer(buffer, op);
    at_once(start_all_reduce_buffer(buffer, op));
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    at_once(start_all_gather_buffer(mine, all));
  }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    if (!adds_up(all.type, op)) return inner_.reduce_scatter_buffer(all, mine, op);
    at_once(start_reduce_scatter_buffer(all, mine, op));
  }

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    if (!adds_up(buffer.type, op)) return to_inner(inner_.start_all_reduce_buffer(buffer, op));
    const auto ranks = static_cast<std::size_t>(size());
    return start({.from = bytes_of(buffer),
                  .to = bytes_of(buffer),
                  .count = (buffer.count + ranks - 1) / ranks,
                  .total = buffer.count,
                  .type = buffer.type,
                  .reduces = true,
                  .gathers = true},
                 {buffer.owner});
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    if (!adds_up(all.type, op)) {
      return to_inner(inner_.start_reduce_scatter_buffer(all, mine, op));
    }
    return start({.from = bytes_of(all),
                  .to = bytes_of(mine),
                  .count = mine.count,
                  .total = mine.count * static_cast<std::size_t>(size()),
                  .type = all.type,
                  .reduces = true},
                 {all.owner, mine.owner});
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    return start({.from = bytes_of(mine),
                  .to = bytes_of(all),
                  .count = mine.count,
                  .total = mine.count * static_cast<std::size_t>(size()),
                  .type = mine.type,
                  .gathers = true},
                 {mine.owner, all.owner});
  }

  bool test(Request& request) override {
    ExchangeProgress::advance();
    if (request.done()) return true;
    if (!is_own(request)) {
      return of_inner(request, [this](Request& its) { inner_.test(its); });
    }
    Slot& slot = slots_[static_cast<std::size_t>(request.slot / 2)];
    if (slot.operation >= exchange_.ended()) return false;
    slot = {};
    request.slot = -1;
    return true;
  }

  void wait(Request& request) override {
    if (request.done()) return;
    if (!is_own(request)) {
      of_inner(request, [this](Request& its) { inner_.wait(its); });
    } else {
      ExchangeProgress::wait_until([&] { return test(request); });
    }
  }

  void synchronize() override { inner_.synchronize(); }
  void synchronize_until(FunctionRef<bool()> reached) override {
    inner_.synchronize_until(reached);
  }

 private:
  /// Requests of the exchange have odd slot numbers, those of `inner_` even ones.
  [[nodiscard]] static bool is_own(const Request& request) noexcept {
    return request.slot % 2 == 1;
  }
  [[nodiscard]] static Request to_inner(Request its) noexcept {
    return its.done() ? its : Request{.slot = 2 * its.slot};
  }
  template <typename Work>
  static bool of_inner(Request& request, Work&& work) {
    Request its{.slot = request.slot / 2};
    work(its);
    request = to_inner(its);
    return request.done();
  }

  [[nodiscard]] Request start(const PieceExchange::Operation& operation,
                              std::array<MemoryOwner, 2> owners) {
    if (operation.total == 0) return {};
    auto slot = std::ranges::find(slots_, false, &Slot::is_taken);
    if (slot == slots_.end()) slot = slots_.emplace(slot);
    *slot = {.operation = exchange_.added(), .is_taken = true, .owners = std::move(owners)};
    exchange_.add(operation);
    return {.slot = 2 * static_cast<int>(slot - slots_.begin()) + 1};
  }
  void at_once(Request request) { wait(request); }

  /// State of a request until test() or wait() finds it done.
  struct Slot {
    std::uint64_t operation = 0;
    bool is_taken = false;
    std::array<MemoryOwner, 2> owners = {};
  };
  std::vector<Slot> slots_ = std::vector<Slot>(64);
  Communicator& inner_;
  std::unique_ptr<SharedSegment> segment_;
  PieceExchange exchange_;
};

}  // namespace

SharedMemoryResult make_shared_memory_communicator(Communicator& inner,
                                                   SharedMemoryOptions options) {
  if (inner.size() == 1) return {.communicator = nullptr, .reason = "there is one rank alone"};
  const std::size_t window = options.bytes != 0 ? options.bytes : window_bytes(inner.size());
  auto [segment, reason] = SharedSegment::make(
      inner, {.common = PieceExchange::counter_bytes(inner.size()), .a_rank = window});
  if (!segment) return {.communicator = nullptr, .reason = std::move(reason)};
  return {
      .communicator = std::make_unique<SharedMemoryCommunicator>(inner, std::move(segment), window),
      .reason = ""};
}

}  // namespace lockstep
