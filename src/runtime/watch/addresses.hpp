#pragma once

#include <string>
#include <vector>

namespace lockstep::watch {

/// This host's addresses as numbers, the one that its own name means first; without loopback.
[[nodiscard]] std::vector<std::string> own_addresses();

}  // namespace lockstep::watch
