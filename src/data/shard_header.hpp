#pragma once

#include "lockstep/data/shard_file.hpp"
#include "lockstep/io/hdf5.hpp"

#include <string>

namespace lockstep {

/// A sample of more bytes than this is refused before memory is taken.
inline constexpr std::int64_t max_sample_bytes = std::int64_t{1} << 28;

/// Reads and validates all of a shard's header. Error(bad_input).
[[nodiscard]] ShardHeader read_shard_header(const h5::File& file, const std::string& path,
                                            std::uint64_t file_bytes);

/// A column that must end inside a file of `file_bytes`.
struct ColumnExtent {
  const ShardColumn& column;
  const char* name;
  std::int64_t elements;
};
/// Error(bad_input) where a contiguous column reaches beyond the file's end.
void check_column(const ColumnExtent& extent, const std::string& path, std::uint64_t file_bytes);
void check_columns(const ShardHeader& header, const std::string& path, std::uint64_t file_bytes);

}  // namespace lockstep
