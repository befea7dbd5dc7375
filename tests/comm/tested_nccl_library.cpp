#include "comm/mpi_fixture.hpp"
#include "comm/tested_nccl.hpp"
#include "lockstep/comm/nccl_settings.hpp"

#include <boost/test/unit_test.hpp>

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace {

/// Each rank of a host takes the GPU at its local rank. Ranks that share a GPU need different
/// values of NCCL_HOSTID.
struct Gpu {
  Gpu() {
    int visible = 0;
    if (cudaGetDeviceCount(&visible) != cudaSuccess || visible == 0) {
      std::fprintf(stderr, "skipped: no usable GPU on this host\n");
      std::_Exit(77);
    }
    lockstep::forbid_nvls(lockstep::nccl_variables());
    mpi.emplace();
    MPI_Comm host = MPI_COMM_NULL;
    int rank = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    if (cudaSetDevice(rank % visible) != cudaSuccess) std::abort();
  }
  std::optional<MpiFixture> mpi;
};
BOOST_TEST_GLOBAL_FIXTURE(Gpu);

}  // namespace

namespace lockstep::test {

std::unique_ptr<NcclApi> tested_nccl(std::span<const std::vector<int>> /*sets*/) {
  return make_nccl_api();
}

}  // namespace lockstep::test
