#include "shard_report.hpp"

#include "lockstep/comm/broadcast_texts.hpp"
#include "lockstep/core/crc32c.hpp"

#include <nlohmann/json.hpp>

#include <filesystem>

namespace lockstep {
namespace {

std::uint32_t checksum_of(const std::vector<std::string>& names) {
  std::uint32_t checksum = 0;
  for (const std::string& name : names) checksum = crc32c(name + '\n', checksum);
  return checksum;
}

ShardReport examine(const std::string& path) {
  const ShardFile shard(path);
  return {.header = shard.header(),
          .contents = shard.scan(),
          .class_names_checksum = checksum_of(shard.header().class_names),
          .bytes = std::filesystem::file_size(path)};
}

/// The names with all bytes that are not UTF-8 replaced by U+FFFD: they come from files.
std::vector<std::string> as_utf8(const std::vector<std::string>& names) {
  using nlohmann::json;
  return json::parse(json(names).dump(-1, ' ', false, json::error_handler_t::replace))
      .get<std::vector<std::string>>();
}

/// Without the class names: checksums are enough to compare them.
nlohmann::json to_json(ShardReport report, std::size_t shard) {
  report.header.class_names.clear();
  return {{"shard", shard},
          {"header", to_text(report.header)},
          {"smallest", report.contents.smallest_label},
          {"largest", report.contents.largest_label},
          {"checksum", report.contents.checksum},
          {"class_names", report.class_names_checksum},
          {"bytes", report.bytes}};
}

ShardReport report_from(const nlohmann::json& json) {
  return {.header = shard_header_from_text(json.at("header").get<std::string>()),
          .contents = {.smallest_label = json.at("smallest").get<std::int64_t>(),
                       .largest_label = json.at("largest").get<std::int64_t>(),
                       .checksum = json.at("checksum").get<std::uint32_t>()},
          .class_names_checksum = json.at("class_names").get<std::uint32_t>(),
          .bytes = json.at("bytes").get<std::uint64_t>()};
}

}  // namespace

std::vector<ShardReport> examine_shards(const std::string& directory,
                                        const std::vector<std::string>& names, Communicator& comm) {
  nlohmann::json mine = nlohmann::json::array();
  std::vector<std::string> class_names;  // of shard 0
  collectively(comm, [&] {
    for (auto i = static_cast<std::size_t>(comm.rank()); i < names.size();
         i += static_cast<std::size_t>(comm.size())) {
      const ShardReport report = examine(directory + "/" + names[i]);
      if (i == 0) class_names = as_utf8(report.header.class_names);
      mine.push_back(to_json(report, i));
    }
  });
  std::vector<ShardReport> reports(names.size());
  for (const std::string& text : all_gather_text(comm, mine.dump())) {
    for (const nlohmann::json& json : nlohmann::json::parse(text)) {
      reports[json.at("shard").get<std::size_t>()] = report_from(json);
    }
  }
  // Apart from the reports: an all-gather would take them once for each rank.
  reports.front().header.class_names = broadcast_texts(comm, class_names);
  return reports;
}

}  // namespace lockstep
