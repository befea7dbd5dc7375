#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// torchvision's name of a tensor.
struct KnownName {
  std::string name;
  std::size_t part = 0;   ///< which of several tensors that are joined along the first axis
  std::size_t parts = 1;  ///< how many there are
};

/// For each name of a file, torchvision's: without the prefixes of wrappers (`module.`, ...), and
/// with the names of timm and Hugging Face translated; empty: no network needs it. Unknown names
/// stay as they are.
[[nodiscard]] std::vector<KnownName> known_names(std::span<const std::string> names);

/// Whether it is a counter that a state dict holds and a network does not need, or is empty.
[[nodiscard]] bool is_unneeded(std::string_view name) noexcept;

}  // namespace lockstep
