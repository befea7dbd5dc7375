#include "shard_report.hpp"

#include "lockstep/comm/broadcast_texts.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/class_names.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep {
namespace {

std::uint32_t checksum_of(const std::vector<std::string>& names) {
  std::uint32_t checksum = 0;
  for (const std::string& name : names) checksum = crc32c(name + '\0', checksum);
  return checksum;
}

ShardReport examine(const std::string& path, const ClassNumbering& numbering) {
  const ShardFile shard(path);
  return {.header = shard.header(),
          .contents = shard.scan(numbering),
          .class_names_checksum = checksum_of(shard.header().class_names),
          .bytes = std::filesystem::file_size(path)};
}

/// Without the class names: checksums are enough to compare them.
Json to_json(ShardReport report, std::size_t shard) {
  report.header.class_names.clear();
  return {{"shard", shard},
          {"header", to_text(report.header)},
          {"smallest", report.contents.smallest_label},
          {"largest", report.contents.largest_label},
          {"checksum", report.contents.checksum},
          {"class_names", report.class_names_checksum},
          {"bytes", report.bytes}};
}

ShardReport report_from(const Json& json) {
  return {.header = shard_header_from_text(json.at("header").get<std::string>()),
          .contents = {.smallest_label = json.at("smallest").get<std::int64_t>(),
                       .largest_label = json.at("largest").get<std::int64_t>(),
                       .checksum = json.at("checksum").get<std::uint32_t>()},
          .class_names_checksum = json.at("class_names").get<std::uint32_t>(),
          .bytes = json.at("bytes").get<std::uint64_t>()};
}

/// Which labels below `count` the samples of any rank have.
std::vector<bool> on_any_rank(const std::vector<bool>& mine, std::int64_t count,
                              Communicator& comm) {
  std::vector<std::int32_t> found(mine.begin(), mine.end());
  found.resize(static_cast<std::size_t>(count));
  comm.all_reduce(std::span<std::int32_t>(found), ReduceOp::max);
  return {found.begin(), found.end()};
}

void add(const std::vector<bool>& labels, std::vector<bool>& all) {
  all.resize(std::max(all.size(), labels.size()));
  for (std::size_t i = 0; i < labels.size(); ++i) all[i] = all[i] || labels[i];
}

}  // namespace

std::vector<ShardReport> examine_shards(const std::string& directory,
                                        const std::vector<std::string>& names, Communicator& comm,
                                        const ClassNumbering& numbering) {
  Json mine = Json::array();
  std::vector<std::string> class_names;  // of shard 0
  std::vector<bool> has_samples;         // of this rank's shards
  collectively(comm, [&] {
    for (auto i = static_cast<std::size_t>(comm.rank()); i < names.size();
         i += static_cast<std::size_t>(comm.size())) {
      const ShardReport report = examine(directory + "/" + names[i], numbering);
      add(report.contents.has_samples, has_samples);
      if (i == 0) class_names = as_utf8(report.header.class_names);
      mine.push_back(to_json(report, i));
    }
  });
  std::vector<ShardReport> reports(names.size());
  std::int64_t labels = 0;
  for (const std::string& text : all_gather_text(comm, mine.dump())) {
    for (const Json& json :
         require_json(text, "a report of shards", "this is a bug", trusted_json)) {
      const ShardReport& report = reports[json.at("shard").get<std::size_t>()] = report_from(json);
      labels = std::max(labels, report.contents.largest_label + 1);
    }
  }
  // Apart from the reports: an all-gather would take them once for each rank.
  reports.front().header.class_names = broadcast_texts(comm, class_names);
  reports.front().contents.has_samples =
      on_any_rank(has_samples, std::min(labels, most_counted_classes), comm);
  return reports;
}

}  // namespace lockstep
