#pragma once

#include "lockstep/config/config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Warnings of valid values that hardly any run can mean, for example because they are in another
/// unit. `global_batch`: for --lr-base-batch.
[[nodiscard]] std::vector<std::string> unlikely_values(const Config& config,
                                                       std::int64_t global_batch);

}  // namespace lockstep
