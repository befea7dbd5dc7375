#pragma once

#include <mutex>

namespace lockstep {

/// Hold it while calling MPI or an exchange, since the thread that progresses exchanges does both.
/// MPI then needs MPI_THREAD_SERIALIZED only.
[[nodiscard]] std::mutex& mpi_mutex() noexcept;

}  // namespace lockstep
