#pragma once

#include "lockstep/runtime/phase_board.hpp"

#include <cstdint>

namespace lockstep::watch {

/// What ranks' watchdogs tell each other; as it lies in memory, since all run one program.
struct RankReport {
  enum class State : std::uint8_t {
    unheard,  ///< its watchdog has not been heard of yet
    running,
    left,         ///< said so, in order
    unreachable,  ///< its connection broke; its process may live
    lost          ///< its process ended, or its node is out of reach
  };
  PhaseBoard::Reading reading;
  double idle = 0;    ///< seconds since it made progress, when last heard of and since
  double silent = 0;  ///< seconds since its own watchdog spoke
  std::int32_t rank = 0;
  State state = State::unheard;

  /// It takes part in the job, as far as is known.
  [[nodiscard]] bool present() const noexcept {
    return state == State::running || state == State::unreachable;
  }
};

}  // namespace lockstep::watch
