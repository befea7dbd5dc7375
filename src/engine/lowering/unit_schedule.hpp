#pragma once

#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/unit_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

/// Where in its step lists a program gathers units and reduces their gradients. Pure.
class UnitSchedule final {
 public:
  explicit UnitSchedule(const std::vector<ArenaUnit>& units) : entered_(units.size()) {
    for (const ArenaUnit& unit : units) {
      ends_.push_back(unit.end);
      stays_.push_back(unit.in_fp32);
    }
  }

  /// Records a use of the unit's parameters by the current pass. Returns whether this is their
  /// first use in the pass.
  [[nodiscard]] bool enter(std::size_t unit) {
    if (entered_[unit]) return false;
    entered_[unit] = true;
    if (!stays_[unit]) last_entered_ = unit;
    return true;
  }
  /// The last unit that forward used is the first that backward uses, so it stays gathered. So does
  /// the unit of all vectors, which every layer uses and which is small.
  void begin_backward() {
    for (std::size_t unit = 0; unit < entered_.size(); ++unit) {
      entered_[unit] = entered_[unit] && stays_[unit];
    }
    if (last_entered_) entered_[*last_entered_] = true;
  }

  /// Gradients are final up to `filled`: calls `await(unit)` and `start(unit)` for the reductions
  /// that are now due. Some stay in flight while the next units' gradients are computed.
  template <typename Await, typename Start>
  void reduce(std::size_t filled, Await await, Start start) {
    for (; reduced_ < ends_.size() && ends_[reduced_] <= filled; ++reduced_) {
      if (reduced_ >= in_flight) await(reduced_ - in_flight);
      start(reduced_);
    }
  }
  /// Calls `await(unit)` for the reductions still in flight.
  template <typename Await>
  void end_backward(Await await) const {
    for (std::size_t unit = reduced_ - std::min(reduced_, in_flight); unit < reduced_; ++unit) {
      await(unit);
    }
  }

 private:
  static constexpr std::size_t in_flight = UnitExchange::reductions_in_flight;
  std::vector<std::size_t> ends_;
  std::vector<bool> stays_;
  std::vector<bool> entered_;  ///< in this pass
  std::optional<std::size_t> last_entered_;
  std::size_t reduced_ = 0;
};

}  // namespace lockstep
