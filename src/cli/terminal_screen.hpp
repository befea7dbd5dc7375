#pragma once

#include "lockstep/core/descriptor.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

/// The alternate screen of standard output's terminal, with keys that are read one by one and not
/// shown. As long as it lives, a signal that ends the program restores the terminal first; Ctrl-C
/// then exits with status 0. At most one may exist.
class TerminalScreen final {
 public:
  TerminalScreen();
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  /// Shows `lines`, and clears the rest.
  void draw(const std::vector<std::string>& lines);

  /// Waits for a key or a signal; false: quit. Ctrl-Z stops the program on the normal screen
  /// meanwhile.
  [[nodiscard]] bool wait(std::chrono::milliseconds timeout);

 private:
  void enter();
  void leave();
  void write(std::string_view text);
  void take_signal();

  std::array<struct sigaction, 4> actions_before_{};  ///< of the signals that end the program
  sigset_t blocked_before_{};
  Descriptor signals_;
  std::string shown_;
  bool lost_ = false;  ///< the terminal cannot be written
};

}  // namespace lockstep::cli
