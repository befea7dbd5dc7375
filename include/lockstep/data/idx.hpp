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
  std::vector<std::byte> values;    ///< size: product of `dims`
};

/// Parses an IDX file, plain or gzip, with 1 to 3 axes. Memory is bounded by the size in the header
/// and by what `bytes` can expand to. Error(bad_input) states what was expected; its text uses
/// `name`.
[[nodiscard]] IdxFile parse_idx(std::span<const std::byte> bytes, const std::string& name);

}  // namespace lockstep
