#pragma once

#include "lockstep/engine/memory_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace lockstep {

/// The step lists of a program under construction, and the lifetimes of the buffers that the steps
/// touch.
template <typename Step>
class StepLists final {
 public:
  void begin_backward() noexcept { in_backward_ = true; }

  /// A new buffer; it is live from the next step on.
  [[nodiscard]] int make_buffer(std::size_t bytes) {
    requests_.push_back({.bytes = bytes, .first_step = position_, .last_step = position_});
    return static_cast<int>(requests_.size()) - 1;
  }
  [[nodiscard]] std::size_t bytes_of(int buffer) const noexcept {
    return requests_[static_cast<std::size_t>(buffer)].bytes;
  }
  /// The next step touches the buffer.
  void touch(int buffer) {
    BufferRequest& request = requests_[static_cast<std::size_t>(buffer)];
    request.first_step = std::min(request.first_step, position_);
    request.last_step = std::max(request.last_step, position_);
  }
  void add(Step step) {
    current().push_back(std::move(step));
    ++position_;
  }
  [[nodiscard]] std::vector<Step> take_forward() { return std::move(forward_); }
  [[nodiscard]] std::vector<Step> take_backward() { return std::move(backward_); }
  [[nodiscard]] MemoryPlan plan() const { return plan_memory(requests_); }

 private:
  [[nodiscard]] std::vector<Step>& current() noexcept {
    return in_backward_ ? backward_ : forward_;
  }

  std::vector<Step> forward_;
  std::vector<Step> backward_;
  std::vector<BufferRequest> requests_;
  int position_ = 0;
  bool in_backward_ = false;
};

}  // namespace lockstep
