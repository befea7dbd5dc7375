#pragma once

namespace lockstep {

/// Installs handlers for SIGUSR1, SIGTERM and SIGINT that only set a flag. They stay installed
/// until the process ends, so that a late signal does not kill ranks during shutdown. A second
/// SIGINT ends the program at once. Ignores SIGPIPE: a write to a closed connection just fails.
class SignalFlag final {
 public:
  SignalFlag();
  ~SignalFlag() = default;
  SignalFlag(const SignalFlag&) = delete;
  SignalFlag& operator=(const SignalFlag&) = delete;
  /// The signal that requested a stop; 0: none. Costs one relaxed load.
  [[nodiscard]] static int received() noexcept;
};

/// Blocks all signals in the calling thread, so that the main thread handles them.
void block_signals() noexcept;

}  // namespace lockstep
