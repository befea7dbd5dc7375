#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace lockstep::test {

/// Simulates a slow serial link: a started collective ends `delay` after its start or after the end
/// of the previous one, whichever is later. Records each start.
class DelayingCommunicator final : public ForwardingCommunicator {
 public:
  using Clock = std::chrono::steady_clock;

  /// `most`: the largest number of requests in flight, and of starts.
  DelayingCommunicator(Communicator& inner, Clock::duration delay, std::size_t most)
      : ForwardingCommunicator(inner), delay_(delay), flights_(most) {
    starts_.reserve(most);
    counts_.reserve(most);
  }

  [[nodiscard]] const std::vector<Clock::time_point>& starts() const noexcept { return starts_; }
  /// Values of the larger buffer, by start.
  [[nodiscard]] const std::vector<std::size_t>& counts() const noexcept { return counts_; }
  /// Sum over all started collectives; each counts the larger of its buffers.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Number of calls of test().
  [[nodiscard]] int tests() const noexcept { return tests_; }
  /// Clears the records of a step, before another one on the same link.
  void forget() noexcept {
    starts_.clear();
    counts_.clear();
    tests_ = 0;
  }

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    return delay(buffer.count, buffer.type, inner().start_all_reduce_buffer(buffer, op));
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    return delay(all.count, all.type, inner().start_reduce_scatter_buffer(all, mine, op));
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    return delay(all.count, all.type, inner().start_all_gather_buffer(mine, all));
  }
  bool test(Request& request) override {
    ++tests_;
    if (request.done()) return true;
    Flight& flight = flights_[static_cast<std::size_t>(request.slot)];
    const bool inner_done = flight.inner.done() || inner().test(flight.inner);
    if (!inner_done || Clock::now() < flight.arrival) return false;
    flight.in_use = false;
    request.slot = -1;
    return true;
  }
  void wait(Request& request) override {
    if (request.done()) return;
    Flight& flight = flights_[static_cast<std::size_t>(request.slot)];
    if (!flight.inner.done()) inner().wait(flight.inner);
    std::this_thread::sleep_until(flight.arrival);
    flight.in_use = false;
    request.slot = -1;
  }

 private:
  struct Flight {
    bool in_use = false;
    Request inner;
    Clock::time_point arrival;
  };
  [[nodiscard]] Request delay(std::size_t count, ElementType type, Request started) {
    const auto slot =
        static_cast<std::size_t>(std::find_if(flights_.begin(), flights_.end(),
                                              [](const Flight& flight) { return !flight.in_use; }) -
                                 flights_.begin());
    starts_.push_back(Clock::now());
    counts_.push_back(count);
    const bool is_16_bit = type == ElementType::bf16 || type == ElementType::f16;
    bytes_ += count * (is_16_bit ? 2 : 4);
    link_free_ = std::max(link_free_, starts_.back()) + delay_;
    flights_.at(slot) = {.in_use = true, .inner = started, .arrival = link_free_};
    return {.slot = static_cast<int>(slot)};
  }

  Clock::duration delay_;
  std::vector<Flight> flights_;
  std::vector<Clock::time_point> starts_;
  std::vector<std::size_t> counts_;
  Clock::time_point link_free_ = Clock::now();
  int tests_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::test
