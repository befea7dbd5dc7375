#pragma once

#include "lockstep/data/pack_source.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// A whole file. Error(no_input) where it is absent or unreadable.
[[nodiscard]] std::vector<std::byte> read_whole_file(const std::string& path);
/// The same into a buffer that is reused.
void read_whole_file(const std::string& path, std::vector<std::byte>& bytes);
/// Lines without their ends; empty ones are left out.
[[nodiscard]] std::vector<std::string> read_lines(const std::string& path);

/// Pixels and labels of one part, all in memory.
struct PixelPart {
  std::vector<std::byte> images;     ///< N x H x W x C
  std::vector<std::uint8_t> labels;  ///< N
};
/// A source over parts in memory; sets the identity.
[[nodiscard]] std::unique_ptr<PackSource> make_pixel_source(SourceInfo info, PixelPart train,
                                                            PixelPart val);

}  // namespace lockstep
