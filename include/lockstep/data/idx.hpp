#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// An IDX file of unsigned bytes: http://yann.lecun.com/exdb/mnist, "the IDX file format".
struct IdxFile {
  std::vector<std::uint32_t> dims;  ///< outermost first
  std::vector<std::byte> values;    ///< their product
};

/// Parses an IDX file, plain or gzip, of 1 to 3 axes. Memory is bounded by what the header
/// announces and by what `bytes` can hold. Error(bad_input) says what was expected; `name` is for
/// its text.
[[nodiscard]] IdxFile parse_idx(std::span<const std::byte> bytes, const std::string& name);

}  // namespace lockstep
