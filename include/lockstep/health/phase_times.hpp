#pragma once

namespace lockstep {

/// Wall time of one step by phase, in seconds. `communication`: time not overlapped with backward.
/// `gpu`: a GPU's own time for forward and backward, which overlaps with the phases; 0: not
/// measured.
struct PhaseTimes {
  double data = 0;
  double forward = 0;
  double backward = 0;
  double communication = 0;
  double optimizer = 0;
  double gpu = 0;
  [[nodiscard]] double total() const noexcept {
    return data + forward + backward + communication + optimizer;
  }
  PhaseTimes& operator+=(const PhaseTimes& other) noexcept {
    data += other.data;
    forward += other.forward;
    backward += other.backward;
    communication += other.communication;
    optimizer += other.optimizer;
    gpu += other.gpu;
    return *this;
  }
};

}  // namespace lockstep
