#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/data/pack.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// What is known of a packing beside its shards: of each shard, of what was left out, of all.
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

/// Writes the file skipped_list_name: a line for each unused entry and each sample, in the given
/// order.
void write_skipped_list(const FilePath& path, const PackSource& source,
                        const std::vector<SkippedSample>& skipped);

/// Error(bad_input) if more than half of a class's samples in a part were skipped; `list` is the
/// path of the list, for the message.
void require_most_of_each_class(const PackSource& source, const std::vector<SkippedSample>& skipped,
                                const std::string& list);

/// What decides the bytes of all shards: names and values, for comparison and for messages.
using PackSettings = std::vector<std::pair<std::string, std::string>>;

/// The file packing_record_name beside the shards: what was packed, with which settings, and what
/// became of each entry of the input. JSON.
[[nodiscard]] std::string packing_record_text(const PackResult& result,
                                              const PackSettings& settings);

/// The result of a packing of these settings; nullopt if the record is another one's.
[[nodiscard]] std::optional<PackResult> parse_packing_record(const std::string& text,
                                                             const PackSettings& settings);
/// The same of the record in `directory`, if there is one.
[[nodiscard]] std::optional<PackResult> read_packing_record(const std::string& directory,
                                                            const PackSettings& settings);

}  // namespace lockstep
