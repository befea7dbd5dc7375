#pragma once

#include <mpi.h>

/// MPI for one test program; these tests stand below the layer `runtime`, which owns it elsewhere.
struct MpiFixture {
  MpiFixture() {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  }
  ~MpiFixture() { MPI_Finalize(); }
};
