#include "packing_record.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/text_file.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <algorithm>
#include <map>

namespace lockstep {
namespace {

constexpr int version_of_record = 1;

Json to_json(const PackSettings& settings) {
  Json json = Json::object();
  for (const auto& [name, value] : settings) json[name] = value;
  return json;
}

Json to_json(const std::map<std::string, EntryFates::LeftOut>& left_out) {
  Json json = Json::object();
  for (const auto& [reason, of] : left_out) {
    json[reason] = {{"entries", of.entries}, {"first", of.first}};
  }
  return json;
}

/// Throws Json::exception for a double too, which may not fit.
std::int64_t count_of(const Json& json, const char* name) {
  return json.at(name).get_ref<const Json::number_integer_t&>();
}

PackResult from_json(const Json& json) {
  PackResult result{.train_samples = count_of(json, "train_samples"),
                    .val_samples = count_of(json, "val_samples"),
                    .skipped = count_of(json, "skipped"),
                    .re_encoded = count_of(json, "re_encoded"),
                    .resized = count_of(json, "resized"),
                    .train_shards = count_of(json, "train_shards"),
                    .val_shards = count_of(json, "val_shards"),
                    .classes = count_of(json, "classes"),
                    .bytes = static_cast<std::uint64_t>(count_of(json, "bytes")),
                    .mean = json.at("mean").get<std::vector<float>>(),
                    .std = json.at("std").get<std::vector<float>>(),
                    .unused = count_of(json, "unused"),
                    .notes = json.at("notes").get<std::vector<std::string>>()};
  for (const Json& place : json.at("skipped_at")) {
    result.skipped_at.emplace_back(place.at(0) == "train" ? SourcePart::train : SourcePart::val,
                                   place.at(1).get_ref<const Json::number_integer_t&>());
  }
  for (const auto& [reason, of] : json.at("left_out").items()) {
    result.left_out[reason] = {.entries = count_of(of, "entries"),
                               .first = of.at("first").get<std::vector<std::string>>()};
  }
  return result;
}

}  // namespace

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

void write_skipped_list(const FilePath& path, const PackSource& source,
                        const std::vector<SkippedSample>& skipped) {
  std::string text;
  const auto add = [&](const std::string& entry, const std::string& reason) {
    text += fmt::format("{}\t{}\n", escape_line(entry), escape_line(reason));
  };
  for (const auto& entry : source.info().fates.unused()) add(entry.path, entry.reason);
  for (const SkippedSample& sample : skipped) {
    add(source.describe(sample.part, sample.index), sample.reason);
  }
  write_text_atomically(path, text);
}

void require_most_of_each_class(const PackSource& source, const std::vector<SkippedSample>& skipped,
                                const std::string& list) {
  if (skipped.empty()) return;
  struct Count {
    std::int64_t samples = 0;
    std::int64_t skipped = 0;
    const SkippedSample* first = nullptr;
  };
  std::map<std::pair<SourcePart, std::int64_t>, Count> counts;
  for (const SkippedSample& sample : skipped) {
    Count& count = counts[{sample.part, source.label(sample.part, sample.index)}];
    if (count.skipped++ == 0) count.first = &sample;
  }
  for (const SourcePart part : {SourcePart::train, SourcePart::val}) {
    for (std::int64_t i = 0; i < source.samples(part); ++i) {
      const auto found = counts.find({part, source.label(part, i)});
      if (found != counts.end()) ++found->second.samples;
    }
  }
  for (const auto& [key, count] : counts) {
    if (count.skipped * 2 <= count.samples) continue;
    const auto& [part, label] = key;
    const std::vector<std::string>& names = source.info().class_names;
    fail(ExitStatus::bad_input,
         "{} of {} {} images of class {} cannot be read (more than half is too many to skip; {} "
         "lists all), {} among them: {}",
         count.skipped, count.samples, part == SourcePart::train ? "training" : "test",
         names.empty() ? std::to_string(label) : names[static_cast<std::size_t>(label)], list,
         source.describe(part, count.first->index), count.first->reason);
  }
}

std::string packing_record_text(const PackResult& result, const PackSettings& settings) {
  Json places = Json::array();
  for (const auto& [part, index] : result.skipped_at) {
    places.push_back({part == SourcePart::train ? "train" : "val", index});
  }
  const Json json{{"format", "lockstep-packing"},
                  {"version", version_of_record},
                  {"settings", to_json(settings)},
                  {"entries", entries_of(result)},
                  {"train_samples", result.train_samples},
                  {"val_samples", result.val_samples},
                  {"skipped", result.skipped},
                  {"skipped_at", places},
                  {"left_out", to_json(result.left_out)},
                  {"unused", result.unused},
                  {"notes", result.notes},
                  {"re_encoded", result.re_encoded},
                  {"resized", result.resized},
                  {"train_shards", result.train_shards},
                  {"val_shards", result.val_shards},
                  {"classes", result.classes},
                  {"bytes", result.bytes},
                  {"mean", result.mean},
                  {"std", result.std}};
  // Names of files need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::optional<PackResult> parse_packing_record(const std::string& text,
                                               const PackSettings& settings) {
  const Json json = parse_json(text, trusted_json).value_or(Json());
  if (!json.is_object() || json.value("version", Json()) != version_of_record ||
      json.value("settings", Json()) != to_json(settings)) {
    return std::nullopt;
  }
  try {
    return from_json(json);
  } catch (const Json::exception&) {
    return std::nullopt;  // edited: the shards are not known to be of these settings
  }
}

std::optional<PackResult> read_packing_record(const std::string& directory,
                                              const PackSettings& settings) {
  const FilePath path = OpenDirectory(directory) / packing_record_name;
  if (!path.exists()) return std::nullopt;
  return parse_packing_record(read_text_file(path), settings);
}

}  // namespace lockstep
