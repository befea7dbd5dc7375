#pragma once

#include "host_device.hpp"

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

namespace lockstep::gpu {

/// Queued work, in order.
class LateQueue final {
 public:
  struct Entry {
    std::function<void()> work;
    std::shared_ptr<HostPoint> after;  ///< null: it waits for nothing
  };
  void push(Entry entry) { pending_.push_back(std::move(entry)); }
  [[nodiscard]] std::size_t queued() const noexcept { return begun_ + pending_.size(); }
  [[nodiscard]] std::size_t begun() const noexcept { return begun_; }
  [[nodiscard]] std::size_t left() const noexcept { return pending_.size(); }
  [[nodiscard]] const Entry& next() const noexcept { return pending_.front(); }
  void run_next() {
    const Entry entry = std::move(pending_.front());
    pending_.pop_front();
    ++begun_;
    entry.work();
  }

 private:
  std::deque<Entry> pending_;
  std::size_t begun_ = 0;
};

/// Runs the operations of each queue as early or as late as possible.
class LateQueues final : public HostQueues {
 public:
  explicit LateQueues(HostWork when)
      : LateQueues(when == HostWork::late, when == HostWork::at_once) {}
  LateQueues(bool late_work, bool late_transfers)
      : late_work_(late_work), late_transfers_(late_transfers) {}

  void push(Device::Queue queue, std::function<void()> work) override {
    push(queue, {.work = std::move(work), .after = nullptr});
  }
  [[nodiscard]] std::shared_ptr<HostPoint> mark(Device::Queue queue) override {
    return std::make_shared<Point>(*this, queue);
  }
  void wait(Device::Queue queue, std::shared_ptr<HostPoint> point) override {
    push(queue, {.work = [] {}, .after = std::move(point)});
  }
  [[nodiscard]] std::size_t left() const noexcept override { return work_.left(); }
  void finish(Device::Queue queue) override { run_until(queue, of(queue).queued()); }

 private:
  class Point final : public HostPoint {
   public:
    Point(LateQueues& queues, Device::Queue queue)
        : queues_(queues), queue_(queue), count_(queues.of(queue).queued()) {}
    void wait() override { queues_.run_until(queue_, count_); }
    [[nodiscard]] bool is_passed() const noexcept { return queues_.of(queue_).begun() >= count_; }
    /// Runs one operation, unless it is passed already; returns whether it was.
    [[nodiscard]] bool reached() override {
      if (is_passed()) return true;
      queues_.run_until(queue_, queues_.of(queue_).begun() + 1);
      return false;
    }

   private:
    LateQueues& queues_;
    Device::Queue queue_;
    std::size_t count_;
  };
  [[nodiscard]] LateQueue& of(Device::Queue queue) noexcept {
    return queue == Device::Queue::work ? work_ : transfers_;
  }
  void push(Device::Queue queue, LateQueue::Entry entry) {
    of(queue).push(std::move(entry));
    if (queue == Device::Queue::work && !late_work_) finish(queue);
    run_early_transfers();
  }
  void run_until(Device::Queue queue, std::size_t count) {
    while (of(queue).begun() < count) {
      if (is_ready(of(queue).next())) {
        of(queue).run_next();
        run_early_transfers();
      } else {
        const auto after = of(queue).next().after;
        after->wait();
      }
    }
  }
  void run_early_transfers() {
    while (!late_transfers_ && transfers_.left() > 0 && is_ready(transfers_.next()))
      transfers_.run_next();
  }
  [[nodiscard]] static bool is_ready(const LateQueue::Entry& entry) noexcept {
    return entry.after == nullptr || static_cast<const Point&>(*entry.after).is_passed();
  }

  bool late_work_;
  bool late_transfers_;
  LateQueue work_;
  LateQueue transfers_;
};

}  // namespace lockstep::gpu
