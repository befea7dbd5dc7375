#pragma once

#include "lockstep/engine/arena.hpp"
#include "lockstep/engine/unit_exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

/// When a program's list, as it is made, gathers units and reduces their gradients. Pure.
class UnitSchedule final {
 public:
  explicit UnitSchedule(const std::vector<ArenaUnit>& units) : entered_(units.size()) {
    for (const ArenaUnit& unit : units) {
      ends_.push_back(unit.end);
      stays_.push_back(unit.in_fp32);
    }
  }

  /// A pass uses the unit's parameters; true where it has not before.
  [[nodiscard]] bool enter(std::size_t unit) {
    if (entered_[unit]) return false;
    entered_[unit] = true;
    if (!stays_[unit]) last_entered_ = unit;
    return true;
  }
  /// The unit that forward used last is the first that backward uses, and stays; so does the one of
  /// all vectors, which every layer uses and which is small.
  void begin_backward() {
    for (std::size_t unit = 0; unit < entered_.size(); ++unit) {
      entered_[unit] = entered_[unit] && stays_[unit];
    }
    if (last_entered_) entered_[*last_entered_] = true;
  }

  /// Gradients are final up to `filled`: calls `await(unit)` and `start(unit)` for the reductions
  /// that are due then, of which some go on while the next units' gradients are computed.
  template <typename Await, typename Start>
  void reduce(std::size_t filled, Await await, Start start) {
    for (; reduced_ < ends_.size() && ends_[reduced_] <= filled; ++reduced_) {
      if (reduced_ >= in_flight) await(reduced_ - in_flight);
      start(reduced_);
    }
  }
  /// Calls `await(unit)` for those that are left.
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
