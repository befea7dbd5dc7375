#pragma once

#include "lockstep/data/pack_source.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// A sample that was left out of a shard.
struct SkippedSample {
  SourcePart part = SourcePart::train;
  std::int64_t index = 0;  ///< in the source's order
  std::string reason;
  friend bool operator==(const SkippedSample&, const SkippedSample&) = default;
};

/// What packing a shard found, beside the shard itself.
struct ShardRecord {
  std::uint64_t bytes = 0;      ///< of the shard's file, without attributes
  std::int64_t re_encoded = 0;  ///< Conversion::re_encoded
  std::int64_t resized = 0;     ///< Conversion::resized
  std::vector<SkippedSample> skipped;
  std::vector<std::uint64_t> counts;  ///< PixelStatistics::counts(), of training pixels
  friend bool operator==(const ShardRecord&, const ShardRecord&) = default;
};

/// One line of JSON, and back. Error(bad_input) if `text` is not a whole record.
[[nodiscard]] std::string to_text(const ShardRecord& record);
[[nodiscard]] ShardRecord parse_shard_record(const std::string& text);

/// Adds the sums of `other` to `other`, and its skipped samples.
void add(ShardRecord& record, const ShardRecord& other);

}  // namespace lockstep
