#pragma once

#include "lockstep/engine/engine.hpp"

#include <cstddef>

namespace lockstep::gpu {

/// Does nothing with gradients.
class SilentObserver final : public BackwardObserver {
 public:
  void gradients_ready(std::size_t /*filled*/) override {}
};

}  // namespace lockstep::gpu
