#pragma once

#include "lockstep/core/error.hpp"

namespace lockstep::watch {

/// abort_job() for threads other than the one that initialized MPI, which should call MPI_Abort but
/// may hang. If MPI_Abort hangs too, the process exits after a while.
[[noreturn]] void abort_from_any_thread(ExitStatus status);

}  // namespace lockstep::watch
