#pragma once

#include "lockstep/data/pack_source.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Reads a whole file. Error(no_input) if it is absent or unreadable.
[[nodiscard]] std::vector<std::byte> read_whole_file(const std::string& path);
/// The same into a reused buffer.
void read_whole_file(const std::string& path, std::vector<std::byte>& bytes);
/// Whether there is anything at the path, also a link to nothing: reading it then says so.
[[nodiscard]] bool is_there(const std::string& path);
/// Lines without trailing blanks and line ends; skips empty lines. Empty if there is no file.
[[nodiscard]] std::vector<std::string> read_lines(const std::string& path);

/// The entries of a directory beside the files `used`. Error(bad_input) if one has the name of an
/// evaluation part: its samples would be missed.
[[nodiscard]] EntryFates entries_beside(const std::string& directory,
                                        const std::vector<std::string>& used);

/// Pixels and labels of one part, all in memory.
struct PixelPart {
  std::vector<std::byte> images;     ///< N x H x W x C
  std::vector<std::uint8_t> labels;  ///< N
};
/// Makes a source of parts in memory, and sets its identity.
[[nodiscard]] std::unique_ptr<PackSource> make_pixel_source(SourceInfo info, PixelPart train,
                                                            PixelPart val);

}  // namespace lockstep
