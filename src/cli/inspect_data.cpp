#include "inspect_report.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/data/class_names.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/shard_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <set>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

Json image_json(const ImageShape& image, bool encoded) {
  if (encoded) return "jpeg";
  return Json::array({image.height, image.width, image.channels});
}

/// `short_side`: as DatasetInfo::short_side.
std::string image_text(const ImageShape& image, bool encoded, std::int64_t short_side) {
  if (!encoded) return fmt::format("{}x{}x{}", image.height, image.width, image.channels);
  return short_side == 0 ? "JPEG files"
                         : fmt::format("JPEG files, short side {} at most", short_side);
}

Json short_side_json(std::int64_t short_side) {
  return short_side == 0 ? Json(nullptr) : Json(short_side);
}

/// Splits with at least one shard file name in the directory.
std::set<std::string> splits_in(const std::string& directory) {
  std::set<std::string> splits;
  for (const std::string& file : names_in(directory)) {
    if (const auto name = parse_shard_name(file)) splits.insert(name->split);
  }
  return splits;
}

/// Adds one split to the report. Returns the names of its classes.
ClassNames add_split(Report& report, const std::string& directory, const std::string& split,
                     Verify verify) {
  const std::vector<std::string> shards = list_shards(directory, split);
  const auto comm = make_self_communicator();
  const auto data = open_dataset(directory, split, *comm);
  const DatasetInfo& info = data->info();
  const std::size_t faults_before = report.faults.size();
  if (verify == Verify::yes) {
    for (const std::string& shard : shards) {
      keep_fault(report, [&] { verify_shard((fs::path(directory) / shard).string()); });
    }
  }
  Json json{{"split", split},
            {"samples", info.samples},
            {"shards", shards.size()},
            {"image", image_json(info.image, info.encoded)},
            {"short_side", short_side_json(info.short_side)},
            {"classes", info.classes},
            {"class_names", info.class_names},
            {"mean", info.mean},
            {"std", info.std},
            {"identity", fmt::format("{:08x}", info.identity)},
            {"notes", info.notes}};
  report.text += fmt::format("{}: {} samples in {} shard{}\n", split, info.samples, shards.size(),
                             shards.size() == 1 ? "" : "s");
  report.text += line("image", image_text(info.image, info.encoded, info.short_side));
  report.text += line("classes", std::to_string(info.classes));
  report.text += line("names", join(info.class_names));
  report.text += line("mean", join(info.mean));
  report.text += line("std", join(info.std));
  report.text += line("identity", fmt::format("{:08x}", info.identity));
  for (const std::string& note : info.notes) report.text += line("note", note);
  if (verify == Verify::yes) add_damage(report, json, "sample", faults_before);
  report.json["splits"].push_back(std::move(json));
  return {.of = "split " + split, .names = info.class_names};
}

/// Whether a network trained on one split can be evaluated on the other.
void compare_classes(Report& report, const ClassNames& train, const ClassNames& val) {
  keep_fault(report, [&] {
    const ClassMatch match = match_classes(train, val, ClassUse::evaluation);
    if (match.note.empty()) return;
    report.json["notes"].push_back(match.note);
    report.text += line("note", match.note);
  });
}

}  // namespace

Report inspect_shard(const std::string& path, Verify verify) {
  Report report;
  const ShardHeader header = ShardFile(path).header();
  if (verify == Verify::yes) keep_fault(report, [&] { verify_shard(path); });
  report.json = {{"path", path},
                 {"kind", "shard"},
                 {"samples", header.samples},
                 {"image", image_json(header.image, header.encoded)},
                 {"short_side", short_side_json(header.short_side)},
                 {"classes", header.classes ? Json(*header.classes) : Json(nullptr)},
                 {"class_names", header.class_names},
                 {"mean", header.mean},
                 {"std", header.std},
                 {"contiguous", header.contiguous},
                 {"checksums", header.checksums.has_value()}};
  report.text = fmt::format("{}: shard of {} samples\n", path, header.samples);
  report.text += line("image", image_text(header.image, header.encoded, header.short_side));
  report.text += line("classes", header.classes ? std::to_string(*header.classes) : "not given");
  report.text += line("names", join(header.class_names));
  report.text += line("mean", header.mean.empty() ? "not given" : join(header.mean));
  report.text += line("std", header.std.empty() ? "not given" : join(header.std));
  report.text +=
      line("layout", header.contiguous ? "contiguous" : "chunked or compressed (slower to read)");
  report.text += line("checksums", header.checksums ? "one a sample" : "none");
  if (verify == Verify::yes) add_damage(report, report.json, "sample");
  return report;
}

Report inspect_data_set(const std::string& directory, Verify verify) {
  Report report;
  report.json = {{"path", directory}, {"kind", "data set"}, {"splits", Json::array()}};
  const auto splits = splits_in(directory);
  if (splits.empty()) {
    fail(ExitStatus::no_input,
         "{} holds no shards and no run (a shard is called train-00000-of-00001.h5, a run "
         "directory has metrics.jsonl); check the path",
         directory);
  }
  report.text = fmt::format("{}: data set\n", directory);
  std::map<std::string, ClassNames> classes;
  for (const std::string& split : splits) {
    keep_fault(report, [&] { classes[split] = add_split(report, directory, split, verify); });
  }
  if (classes.contains("train") && classes.contains("val")) {
    compare_classes(report, classes["train"], classes["val"]);
  }
  return report;
}

}  // namespace lockstep::cli
