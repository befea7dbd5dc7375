#pragma once

#include "lockstep/comm/nccl_api.hpp"

#include <memory>
#include <span>
#include <vector>

namespace lockstep::test {

/// The NCCL that nccl_library_test tests: the library, or the stand-in. Communicators over `sets`
/// will be made, in this order.
[[nodiscard]] std::unique_ptr<NcclApi> tested_nccl(std::span<const std::vector<int>> sets);

}  // namespace lockstep::test
