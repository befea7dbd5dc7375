#pragma once

#include "lockstep/comm/forwarding_communicator.hpp"
#include "lockstep/engine/engine.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

namespace lockstep::test {

/// Counts time in steps of programs, which a busy machine does not change. As an engine's step
/// timer, it advances by one for each step that the engine runs.
class StepClock final : public StepTimer {
 public:
  [[nodiscard]] bool wants() const noexcept override {
    ++now_;
    return false;
  }
  void took(std::string_view, std::int64_t, std::int64_t) override {}
  [[nodiscard]] double now() const noexcept { return now_; }
  /// Advances to `time`, and counts the difference as waited.
  void wait_until(double time) noexcept {
    waited_ += std::max(0.0, time - now_);
    now_ = std::max(now_, time);
  }
  [[nodiscard]] double waited() const noexcept { return waited_; }

 private:
  mutable double now_ = 0;
  double waited_ = 0;
};

/// Simulates a slow serial link: a started collective ends `delay` after its start or after the end
/// of the previous one, whichever is later.
class SteppedCommunicator final : public ForwardingCommunicator {
 public:
  SteppedCommunicator(Communicator& inner, StepClock& clock, double delay)
      : ForwardingCommunicator(inner), clock_(clock), delay_(delay) {}

  [[nodiscard]] std::size_t started() const noexcept { return started_; }

  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer buffer, ReduceOp op) override {
    return delayed(inner().start_all_reduce_buffer(buffer, op));
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer all, MutableBuffer mine,
                                                    ReduceOp op) override {
    return delayed(inner().start_reduce_scatter_buffer(all, mine, op));
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer mine, MutableBuffer all) override {
    return delayed(inner().start_all_gather_buffer(mine, all));
  }
  /// Complete if its time of arrival is reached; then waits for the other ranks, however late they
  /// are.
  bool test(Request& request) override {
    if (request.done()) return true;
    Flight& flight = of(request);
    if (clock_.now() < flight.arrival) {
      if (!flight.inner.done()) static_cast<void>(inner().test(flight.inner));
      return false;
    }
    complete(request);
    return true;
  }
  void wait(Request& request) override {
    if (request.done()) return;
    clock_.wait_until(of(request).arrival);
    complete(request);
  }

 private:
  struct Flight {
    bool in_use = false;
    Request inner;
    double arrival = 0;
  };
  [[nodiscard]] Flight& of(const Request& request) {
    return flights_[static_cast<std::size_t>(request.slot)];
  }
  void complete(Request& request) {
    Flight& flight = of(request);
    if (!flight.inner.done()) inner().wait(flight.inner);
    flight.in_use = false;
    request.slot = -1;
  }
  [[nodiscard]] Request delayed(Request started) {
    ++started_;
    const auto place = std::ranges::find(flights_, false, &Flight::in_use);
    const auto slot = place - flights_.begin();
    if (place == flights_.end()) flights_.emplace_back();
    free_at_ = std::max(free_at_, clock_.now()) + delay_;
    flights_[static_cast<std::size_t>(slot)] = {
        .in_use = true, .inner = started, .arrival = free_at_};
    return {.slot = static_cast<int>(slot)};
  }

  StepClock& clock_;
  double delay_;
  std::vector<Flight> flights_;
  double free_at_ = 0;
  std::size_t started_ = 0;
};

}  // namespace lockstep::test
