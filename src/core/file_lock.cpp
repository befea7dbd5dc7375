#include "lockstep/core/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

namespace lockstep {

LockAttempt try_lock(const Descriptor& file) noexcept {
  // Of the open file, as flock() is: another descriptor of this process may be closed.
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_OFD_SETLK, &whole) != 0) {
    const bool is_held = errno == EAGAIN || errno == EACCES;
    return is_held ? LockAttempt::held_by_another : LockAttempt::unsupported;
  }
  // For flock(1) and earlier versions, which know no other lock. A reader of the file may hold it.
  const bool is_in_doubt = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  return is_in_doubt ? LockAttempt::unsupported : LockAttempt::got_it;
}

}  // namespace lockstep
