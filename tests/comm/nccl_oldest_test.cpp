#include "lockstep/comm/nccl_api.hpp"

#include <boost/test/unit_test.hpp>

#include <nccl.h>

#include <array>
#include <memory>
#include <string_view>

using namespace lockstep;

namespace {

void* find_nothing(const char* /*name*/) {
  return nullptr;
}

/// In place of ncclCommInitRankScalable: checks the arguments.
int init(void** comm, int ranks, int rank, int count, const NcclUniqueId* ids, void* config) {
  *comm = config;
  const bool same = ranks == 7 && rank == 5 && count == 2 && ids[1][127] == 9;
  return static_cast<int>(same ? NcclResult::in_progress : NcclResult::invalid_argument);
}
void* find_init(const char* name) {
  return std::string_view(name) == "ncclCommInitRankScalable" ? reinterpret_cast<void*>(&init)
                                                              : nullptr;
}

}  // namespace

BOOST_AUTO_TEST_CASE(an_nccl_without_newer_functions_is_used_without_them) {
  const std::unique_ptr<NcclApi> nccl = make_nccl_api(find_nothing);
  int memory = 0;
  NcclWindow window = &memory;

  const NcclResult result = nccl->comm_window_register(nullptr, &memory, sizeof(memory), &window);

  BOOST_TEST((result == NcclResult::success));
  BOOST_TEST(window == nullptr);
  BOOST_TEST(!nccl->has_scalable_init());
}

BOOST_AUTO_TEST_CASE(functions_that_are_found_are_called) {
  const std::unique_ptr<NcclApi> nccl = make_nccl_api(find_init);
  std::array<NcclUniqueId, 2> ids{};
  ids[1][127] = 9;
  NcclComm comm = nullptr;

  const NcclResult result = nccl->comm_init_rank_scalable(&comm, 7, 5, ids, {});

  BOOST_TEST(nccl->has_scalable_init());
  BOOST_TEST((result == NcclResult::in_progress));
  BOOST_TEST(comm != nullptr);
}

BOOST_AUTO_TEST_CASE(the_installed_nccl_has_its_newer_functions) {
  int version = 0;
  BOOST_TEST_REQUIRE(ncclGetVersion(&version) == ncclSuccess);

  BOOST_TEST(make_nccl_api()->has_scalable_init() == (version >= NCCL_VERSION(2, 23, 0)));
  BOOST_TEST((find_nccl_symbol("ncclCommWindowRegister") != nullptr) ==
             (version >= NCCL_VERSION(2, 27, 0)));
}
