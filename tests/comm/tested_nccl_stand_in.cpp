#include "comm/mpi_fixture.hpp"
#include "comm/nccl_stand_in.hpp"
#include "comm/tested_nccl.hpp"

#include <boost/test/unit_test.hpp>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace lockstep::test {

std::unique_ptr<NcclApi> tested_nccl(std::span<const std::vector<int>> sets) {
  auto nccl = std::make_unique<NcclStandIn>(sets);
  nccl->vary(1);
  return nccl;
}

}  // namespace lockstep::test
