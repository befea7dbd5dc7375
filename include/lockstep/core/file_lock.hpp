#pragma once

#include "lockstep/core/descriptor.hpp"

namespace lockstep {

enum class LockAttempt {
  got_it,
  held_by_another,
  unsupported,  ///< or in doubt: only other signs tell whether another process holds it
};

/// Tries to lock a file against all other processes until the descriptor, which must be open for
/// writing, is closed. Whoever may only read the file cannot keep others from this lock. errno
/// tells why it is not `got_it`.
[[nodiscard]] LockAttempt try_lock(const Descriptor& file) noexcept;

}  // namespace lockstep
