#pragma once

#include "lockstep/comm/communicator.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// One text of several without zero bytes, and back.
[[nodiscard]] std::string join_texts(const std::vector<std::string>& texts);
[[nodiscard]] std::vector<std::string> split_texts(std::string_view joined);

/// Returns rank 0's texts, which have no zero bytes, on every rank. Collective: one
/// broadcast_text().
[[nodiscard]] std::vector<std::string> broadcast_texts(Communicator& comm,
                                                       const std::vector<std::string>& texts);

}  // namespace lockstep
