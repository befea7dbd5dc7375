#pragma once

namespace lockstep {

/// Raises this process's soft limit of open files, usually 1024, towards the hard limit, so that a
/// data set's shards stay open. Call before MPI starts: its processes inherit the limit.
void raise_open_file_limit() noexcept;

}  // namespace lockstep
