#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

/// Exit status of a process. Of these, job scripts resubmit only on `internal` and `stopped`
/// (docs/exit-status.md).
enum class ExitStatus : int {
  ok = 0,
  unfit = 1,          ///< `doctor`: something would stop a run; `restart`: no restart
  usage = 64,         ///< bad usage or configuration, impossible combination
  bad_input = 65,     ///< input exists but is wrong
  no_input = 66,      ///< input is absent or unreadable
  diverged = 69,      ///< training diverged; never resubmit
  internal = 70,      ///< internal error, or a rank was lost
  cannot_write = 73,  ///< cannot write, or the run directory is held
  stopped = 75,       ///< stopped on request with a checkpoint written; submit again
};

/// The only error type. Its text is *problem (why); suggestion*, with the values.
class Error final : public std::runtime_error {
 public:
  Error(ExitStatus status, const std::string& message)
      : std::runtime_error(message), status_(status) {}

  [[nodiscard]] ExitStatus status() const noexcept { return status_; }

 private:
  ExitStatus status_;
};

/// Throws an Error with a formatted message: `fail(ExitStatus::usage, "--lr is {} (...)", lr)`.
template <typename... Args>
[[noreturn]] void fail(ExitStatus status, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(status, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lockstep
