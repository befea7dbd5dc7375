#include "shard_record.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"

#include <algorithm>

namespace lockstep {
namespace {}  // namespace

std::string to_text(const ShardRecord& record) {
  Json skipped = Json::array();
  for (const SkippedSample& sample : record.skipped) {
    skipped.push_back({{"train", sample.part == SourcePart::train},
                       {"index", sample.index},
                       {"reason", sample.reason}});
  }
  const Json json{{"bytes", record.bytes},
                  {"re_encoded", record.re_encoded},
                  {"resized", record.resized},
                  {"skipped", std::move(skipped)},
                  {"counts", record.counts}};
  // Reasons may quote bytes of a damaged file that are not UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ShardRecord parse_shard_record(const std::string& text) {
  const Json json = require_json(text, "a shard's record", "pack again", trusted_json);
  try {
    ShardRecord record{.bytes = json.at("bytes"),
                       .re_encoded = json.at("re_encoded"),
                       .resized = json.at("resized"),
                       .skipped = {},
                       .counts = json.at("counts")};
    for (const Json& sample : json.at("skipped")) {
      record.skipped.push_back(
          {.part = sample.at("train").get<bool>() ? SourcePart::train : SourcePart::val,
           .index = sample.at("index"),
           .reason = sample.at("reason")});
    }
    return record;
  } catch (const Json::exception& error) {
    fail(ExitStatus::bad_input, "a shard's record cannot be read ({}); pack again", error.what());
  }
}

void add(ShardRecord& record, const ShardRecord& other) {
  record.bytes += other.bytes;
  record.re_encoded += other.re_encoded;
  record.resized += other.resized;
  record.skipped.insert(record.skipped.end(), other.skipped.begin(), other.skipped.end());
  record.counts.resize(std::max(record.counts.size(), other.counts.size()));
  for (std::size_t i = 0; i < other.counts.size(); ++i) record.counts[i] += other.counts[i];
}

}  // namespace lockstep
