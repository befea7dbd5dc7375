#pragma once

#include <string_view>

namespace lockstep {

/// Beginning of the names of all shared-memory segments, after the slash of shm_open().
inline constexpr std::string_view segment_prefix = "lockstep-";

/// Locks a segment that this process has just created, until `file` is closed. False if another
/// process has removed it in the meantime.
[[nodiscard]] bool lock_segment(int file) noexcept;

/// Removes this user's segments whose creators were killed before they could unlink them. A creator
/// holds a lock as long as the name exists, and the system releases it when the process ends. This
/// holds for processes in other containers too, whose ids say nothing here. The names do not
/// survive a reboot.
void remove_stale_segments() noexcept;

}  // namespace lockstep
