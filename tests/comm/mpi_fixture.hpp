#pragma once

#include <mpi.h>

/// Initialises MPI for a test program of a layer below `runtime`, which owns MPI elsewhere.
struct MpiFixture {
  MpiFixture() {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  }
  ~MpiFixture() { MPI_Finalize(); }
};
