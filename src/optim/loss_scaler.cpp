#include "lockstep/optim/loss_scaler.hpp"

namespace lockstep {

void LossScaler::update(bool finite) noexcept {
  if (!state_) return;
  if (!finite) {
    state_->scale /= 2;
    state_->good_steps = 0;
    ++state_->skipped_steps;
    return;
  }
  if (++state_->good_steps < growth_interval) return;
  state_->good_steps = 0;
  if (state_->scale < largest_scale) state_->scale *= 2;
}

}  // namespace lockstep
