#pragma once

namespace lockstep {

/// Installs handlers for SIGUSR1, SIGTERM and SIGINT that only set a flag, to the end of the
/// process (they stay: a late signal must not kill the ranks while they part). A second SIGINT ends
/// the program at once. Writing to who is gone (SIGPIPE) is an error of the write alone.
class SignalFlag final {
 public:
  SignalFlag();
  ~SignalFlag() = default;
  SignalFlag(const SignalFlag&) = delete;
  SignalFlag& operator=(const SignalFlag&) = delete;
  /// The signal that asked to stop, 0 for none. One relaxed load.
  [[nodiscard]] static int received() noexcept;
};

}  // namespace lockstep
