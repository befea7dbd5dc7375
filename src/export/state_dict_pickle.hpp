#pragma once

#include "state_dict.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// `data.pkl` of a file of torch.save(): Python's pickle, protocol 2, of a collections.OrderedDict
/// that maps each name to torch._utils._rebuild_tensor_v2() over the storage numbered by the
/// tensor's position. Has only what weights_only=True accepts. Precondition: tensors of fewer than
/// 2^31 values, as others do not fit into the archive.
[[nodiscard]] std::string state_dict_pickle(const std::vector<StateTensor>& tensors);

}  // namespace lockstep
