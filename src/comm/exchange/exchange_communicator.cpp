#include "exchange_communicator.hpp"

#include "../element_sums.hpp"
#include "../keep_until_exit.hpp"
#include "exchange_progress.hpp"
#include "lockstep/comm/element_size.hpp"
#include "lockstep/comm/first_text.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace lockstep {
namespace {

bool adds_up(ElementType type, ReduceOp op) {
  return op == ReduceOp::sum && is_summed_type(type);
}

const std::byte* bytes_of(ConstBuffer buffer) {
  return static_cast<const std::byte*>(buffer.data);
}
std::byte* bytes_of(MutableBuffer buffer) {
  return static_cast<std::byte*>(buffer.data);
}

class ExchangeCommunicator final : public Communicator {
 public:
  ExchangeCommunicator(std::shared_ptr<Communicator> inner, std::unique_ptr<Exchange> exchange,
                       ExchangeCommunicatorOptions options)
      : inner_(std::move(inner)), exchange_(std::move(exchange)), options_(std::move(options)) {
    progress_.join(*exchange_, options_.prepare_thread);
  }
  ExchangeCommunicator(const ExchangeCommunicator&) = delete;
  ExchangeCommunicator& operator=(const ExchangeCommunicator&) = delete;
  ~ExchangeCommunicator() override {
    progress_.leave(*exchange_);
    for (Slot& slot : slots_) {
      for (MemoryOwner& owner : slot.owners) keep_until_exit(std::move(owner));
    }
  }

  [[nodiscard]] int rank() const noexcept override { return inner_->rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_->size(); }

  void barrier() override { inner_->barrier(); }
  void broadcast_buffer(MutableBuffer buffer, int root) override {
    inner_->broadcast_buffer(buffer, root);
  }
  void gather_buffer(ConstBuffer mine, MutableBuffer all, int root) override {
    inner_->gather_buffer(mine, all, root);
  }
  void scatter_buffer(ConstBuffer all, MutableBuffer mine, int root) override {
    inner_->scatter_buffer(all, mine, root);
  }
  void all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    if (!adds_up(buffer.type, op) || is_small(buffer.count, buffer.type)) {
      return inner_->all_reduce_buffer(buffer, op);
    }
    at_once(start_all_reduce_buffer(buffer, op));
  }
  void all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    if (is_small(all.count, all.type)) return inner_->all_gather_buffer(mine, all);
    at_once(start_all_gather_buffer(mine, all));
  }
  void reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine, ReduceOp op) override {
    if (!adds_up(all.type, op) || is_small(all.count, all.type)) {
      return inner_->reduce_scatter_buffer(all, mine, op);
    }
    at_once(start_reduce_scatter_buffer(all, mine, op));
  }

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    if (!adds_up(buffer.type, op)) return to_inner(inner_->start_all_reduce_buffer(buffer, op));
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
      return to_inner(inner_->start_reduce_scatter_buffer(all, mine, op));
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

  [[nodiscard]] Request start_send_buffer(ConstBuffer buffer, int to) override {
    return to_inner(inner_->start_send_buffer(buffer, to));
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer buffer, int from) override {
    return to_inner(inner_->start_receive_buffer(buffer, from));
  }
  [[nodiscard]] std::unique_ptr<Communicator> split(int color, int key) override {
    ExchangePart part{.communicator = inner_->split(color, key), .reason = ""};
    if (part.communicator->size() > 1) part = options_.over(std::move(part.communicator));
    // All ranks fail, or some would wait for those that have failed.
    const std::string reason = first_text(*inner_, part.reason);
    if (reason.empty()) return std::move(part.communicator);
    fail(ExitStatus::internal,
         "one part of a split of {} ranks has no shared memory ({}); make room in /dev/shm", size(),
         reason);
  }

  bool test(Request& request) override {
    if (!is_own(request)) {
      static_cast<void>(progress_.try_advance());
      if (request.done()) return true;
      return of_inner(request, [this](Request& its) { inner_->test(its); });
    }
    const auto advanced = progress_.try_advance();
    return advanced && release_if_ended(request);
  }

  void wait(Request& request) override {
    if (request.done()) return;
    if (!is_own(request)) {
      of_inner(request, [this](Request& its) { inner_->wait(its); });
    } else {
      progress_.wait_until([&] { return release_if_ended(request); });
    }
  }

  void synchronize() override { inner_->synchronize(); }
  void synchronize_until(FunctionRef<bool()> reached) override {
    inner_->synchronize_until(reached);
  }

 private:
  [[nodiscard]] bool is_small(std::size_t count, ElementType type) const noexcept {
    return count * size_of(type) < options_.smallest_blocking;
  }
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

  [[nodiscard]] Request start(const ExchangeOperation& operation,
                              std::array<MemoryOwner, 2> owners) {
    if (operation.total == 0) return {};
    auto slot = std::ranges::find(slots_, false, &Slot::is_taken);
    if (slot == slots_.end()) slot = slots_.emplace(slot);
    *slot = {.operation = started_++, .is_taken = true, .owners = std::move(owners)};
    progress_.add(*exchange_, operation);
    return {.slot = 2 * static_cast<int>(slot - slots_.begin()) + 1};
  }
  /// Call while no other thread advances the exchange.
  bool release_if_ended(Request& request) {
    Slot& slot = slot_of(request);
    if (slot.operation >= exchange_->ended()) return false;
    slot = {};
    request.slot = -1;
    return true;
  }
  void at_once(Request request) { wait(request); }

  /// State of a request until test() or wait() finds it done.
  struct Slot {
    std::uint64_t operation = 0;
    bool is_taken = false;
    std::array<MemoryOwner, 2> owners = {};
  };
  [[nodiscard]] Slot& slot_of(const Request& request) {
    return slots_[static_cast<std::size_t>(request.slot / 2)];
  }

  ExchangeProgress& progress_ = ExchangeProgress::of_process();
  std::vector<Slot> slots_ = std::vector<Slot>(64);
  std::uint64_t started_ = 0;  ///< operations of the exchange
  std::shared_ptr<Communicator> inner_;
  std::unique_ptr<Exchange> exchange_;
  ExchangeCommunicatorOptions options_;
};

}  // namespace

std::unique_ptr<Communicator> make_exchange_communicator(std::shared_ptr<Communicator> inner,
                                                         std::unique_ptr<Exchange> exchange,
                                                         ExchangeCommunicatorOptions options) {
  return std::make_unique<ExchangeCommunicator>(std::move(inner), std::move(exchange),
                                                std::move(options));
}

}  // namespace lockstep
