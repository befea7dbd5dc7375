#pragma once

#include "lockstep/runtime/phase_board.hpp"

#include <cstdint>
#include <vector>

namespace lockstep::watch {

/// A rank's state as sent between watchdogs; sent as raw memory, since all run the same program.
struct RankReport {
  enum class State : std::uint8_t {
    unheard,  ///< no report from its watchdog yet
    running,
    left,         ///< said goodbye
    unreachable,  ///< its connection broke; its process may live
    lost          ///< its process ended, or its node is unreachable
  };
  PhaseBoard::Reading reading;
  double idle = 0;    ///< seconds without known progress, including the age of the report
  double silent = 0;  ///< seconds since its own watchdog last reported
  std::int32_t rank = 0;
  State state = State::unheard;

  /// Whether it takes part in the job, as far as is known.
  [[nodiscard]] bool present() const noexcept {
    return state == State::running || state == State::unreachable;
  }
  [[nodiscard]] bool waits() const noexcept { return reading.waits_in != CollectiveKind::none; }
};

/// Only rank 0 receives reports of all ranks; other ranks ignore those they have none of.
inline void ignore_unheard(std::vector<RankReport>& reports) {
  for (RankReport& report : reports) {
    if (report.state == RankReport::State::unheard) report.state = RankReport::State::left;
  }
}

}  // namespace lockstep::watch
