#pragma once

#include "lockstep/data/shard_file.hpp"
#include "lockstep/io/hdf5_reader.hpp"

#include <string>

namespace lockstep {

/// Larger samples are rejected before memory is allocated.
inline constexpr std::int64_t max_sample_bytes = std::int64_t{1} << 28;

/// A sample's value in `/crc32c`: over its bytes, then its label.
[[nodiscard]] std::uint32_t checksum_of(const RawSample& sample);
/// The bits of a sample's checksum that another label of the same image changes: a CRC is linear.
[[nodiscard]] std::uint32_t checksum_change(std::int64_t label, std::int64_t other);

/// Reads and validates a shard's whole header. Error(bad_input).
[[nodiscard]] ShardHeader read_shard_header(const h5::Object& file, const std::string& path,
                                            std::uint64_t file_bytes);

/// A column that must fit into the file.
struct ColumnExtent {
  const ShardColumn& column;
  const char* name;
  std::int64_t elements;
};
/// Error(bad_input) if a contiguous column extends beyond the end of the file, or another column is
/// larger than 1032 times the file.
void check_column(const ColumnExtent& extent, const std::string& path, std::uint64_t file_bytes);
void check_columns(const ShardHeader& header, const std::string& path, std::uint64_t file_bytes);

}  // namespace lockstep
