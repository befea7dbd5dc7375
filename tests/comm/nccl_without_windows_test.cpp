#include "lockstep/comm/nccl_api.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(nccl_before_2_27_registers_no_window) {
  const std::unique_ptr<NcclApi> nccl = make_nccl_api();
  int memory = 0;
  NcclWindow window = &memory;

  const NcclResult result = nccl->comm_window_register(nullptr, &memory, sizeof(memory), &window);

  BOOST_TEST((result == NcclResult::success));
  BOOST_TEST(window == nullptr);
}
