#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace lockstep {

/// Slots for requests. A buffer that is reduced repeatedly gets its previous slot again, so later
/// steps create no slots, whatever the order in which requests end.
template <typename Contents>
class SlotPool final {
 public:
  /// Returns the number of a slot for this buffer and marks it as taken. `make()` makes the
  /// contents of a new slot; `fits(contents)` tells whether an existing slot is suitable.
  template <typename Make, typename Fits>
  [[nodiscard]] std::size_t take(const void* buffer, Make&& make, Fits&& fits) {
    const auto is_its_own = [&](const Slot& slot) {
      return !slot.taken && slot.buffer == buffer && fits(slot.contents);
    };
    const auto is_free = [&](const Slot& slot) { return !slot.taken && fits(slot.contents); };
    auto found = std::find_if(slots_.begin(), slots_.end(), is_its_own);
    // Bounds memory if buffers are never used again.
    if (found == slots_.end() && slots_.size() >= many)
      found = std::find_if(slots_.begin(), slots_.end(), is_free);
    if (found == slots_.end()) {
      slots_.push_back({.contents = make()});
      found = slots_.end() - 1;
    }
    found->taken = true;
    found->buffer = buffer;
    return static_cast<std::size_t>(found - slots_.begin());
  }
  void give_back(std::size_t slot) noexcept { slots_[slot].taken = false; }
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (Slot& slot : slots_) visit(slot.contents);
  }
  [[nodiscard]] Contents& operator[](std::size_t slot) noexcept { return slots_[slot].contents; }

 private:
  static constexpr std::size_t many = 1024;
  struct Slot {
    bool taken = false;
    const void* buffer = nullptr;
    Contents contents;
  };
  std::vector<Slot> slots_;
};

}  // namespace lockstep
