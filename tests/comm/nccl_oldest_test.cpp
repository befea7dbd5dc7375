#include "lockstep/comm/nccl_api.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <string_view>

using namespace lockstep;

namespace {

void* find_nothing(const char* /*name*/) {
  return nullptr;
}

/// Calls of ncclCommSplit's stand-in.
int splits = 0;
int split(void* /*parent*/, int color, int key, void** made, void* /*config*/) {
  ++splits;
  *made = &splits;
  return color == 3 && key == 1 ? static_cast<int>(NcclResult::in_progress)
                                : static_cast<int>(NcclResult::invalid_argument);
}
void* find_split(const char* name) {
  return std::string_view(name) == "ncclCommSplit" ? reinterpret_cast<void*>(&split) : nullptr;
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
  BOOST_TEST(!nccl->has_split());
}

BOOST_AUTO_TEST_CASE(functions_that_are_found_are_called) {
  const std::unique_ptr<NcclApi> nccl = make_nccl_api(find_split);
  NcclComm made = nullptr;

  const NcclResult result = nccl->comm_split(nullptr, 3, 1, &made, {});

  BOOST_TEST(nccl->has_split());
  BOOST_TEST(!nccl->has_scalable_init());
  BOOST_TEST((result == NcclResult::in_progress));
  BOOST_TEST(made == &splits);
}

BOOST_AUTO_TEST_CASE(the_installed_nccl_has_its_newer_functions) {
  const std::unique_ptr<NcclApi> nccl = make_nccl_api();
  const bool has_windows = find_nccl_symbol("ncclCommWindowRegister") != nullptr;

  BOOST_TEST(nccl->has_split());
  BOOST_TEST((nccl->has_scalable_init() || !has_windows));
}
