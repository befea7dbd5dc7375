#pragma once

#include "lockstep/core/error.hpp"

#include <string>

namespace lockstep {

/// Whether the same command goes on after a process of this program has ended with `status`.
[[nodiscard]] bool resumes_after(ExitStatus status) noexcept;

/// The same for the status of a launcher: that of a rank; 128 plus the signal that ended one; or
/// its own, as docs/exit-status.md lists them.
[[nodiscard]] bool resumes_after_launcher(int status) noexcept;

/// Whether a launcher's status says that a rank crashed: SIGILL, SIGBUS, SIGFPE or SIGSEGV.
[[nodiscard]] bool is_crash(int status) noexcept;

/// Whether a launcher may end with `status` after a rank ran out of memory, and after other events.
[[nodiscard]] bool may_lack_memory(int status) noexcept;

/// Whether to submit a command that ends with `status` again:
/// "(status 69: the same command would fail again)".
[[nodiscard]] std::string advice_after(ExitStatus status);

}  // namespace lockstep
