#pragma once

#include "lockstep/comm/nccl_api.hpp"

namespace lockstep {

/// NCCL calls that run at once.
class NcclGroup final {
 public:
  explicit NcclGroup(NcclApi& api) : api_(api), worst_(api.group_start()) {}

  /// `result`: of a call of the group.
  void add(NcclResult result) noexcept {
    if (worst_ == NcclResult::success && result != NcclResult::in_progress) worst_ = result;
  }
  /// The first failure, or the result of the group.
  [[nodiscard]] NcclResult end() {
    const NcclResult result = api_.group_end();
    return worst_ == NcclResult::success ? result : worst_;
  }

 private:
  NcclApi& api_;
  NcclResult worst_;
};

}  // namespace lockstep
