#include "lockstep/data/dataset.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/shard_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <list>
#include <mutex>
#include <unordered_map>

namespace lockstep {
namespace {

/// Files a rank holds open; a node of many ranks must stay below the usual limit of 1024 each.
constexpr std::size_t max_open_shards = 64;

/// One shard as its validating rank found it.
struct ShardReport {
  ShardHeader header;
  ShardContents contents;
  std::uint32_t class_names_checksum = 0;
};

std::uint32_t checksum_of(const std::vector<std::string>& names) {
  std::uint32_t checksum = 0;
  for (const std::string& name : names) checksum = crc32c(name + '\n', checksum);
  return checksum;
}

ShardReport examine(const std::string& path) {
  const ShardFile shard(path);
  return {.header = shard.header(),
          .contents = shard.scan(),
          .class_names_checksum = checksum_of(shard.header().class_names)};
}

nlohmann::json to_json(ShardReport report, std::size_t shard) {
  // A thousand shards need not all send a thousand names: the first shard's are taken.
  if (shard != 0) report.header.class_names.clear();
  return {{"shard", shard},
          {"header", to_text(report.header)},
          {"smallest", report.contents.smallest_label},
          {"largest", report.contents.largest_label},
          {"checksum", report.contents.checksum},
          {"class_names", report.class_names_checksum}};
}

ShardReport report_from(const nlohmann::json& json) {
  return {.header = shard_header_from_text(json.at("header").get<std::string>()),
          .contents = {.smallest_label = json.at("smallest").get<std::int64_t>(),
                       .largest_label = json.at("largest").get<std::int64_t>(),
                       .checksum = json.at("checksum").get<std::uint32_t>()},
          .class_names_checksum = json.at("class_names").get<std::uint32_t>()};
}

/// File names are any bytes but "/", which separates them.
std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('/', begin), text.size());
    names.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::string shape_text(const ShardHeader& header) {
  return header.encoded ? "encoded images"
                        : fmt::format("images of {}x{}x{} (H, W, C)", header.image.height,
                                      header.image.width, header.image.channels);
}

/// All shards' reports, in order, on every rank.
std::vector<ShardReport> examine_all(const std::string& directory,
                                     const std::vector<std::string>& names, Communicator& comm) {
  nlohmann::json mine = nlohmann::json::array();
  collectively(comm, [&] {
    for (auto i = static_cast<std::size_t>(comm.rank()); i < names.size();
         i += static_cast<std::size_t>(comm.size())) {
      mine.push_back(to_json(examine(directory + "/" + names[i]), i));
    }
  });
  std::vector<ShardReport> reports(names.size());
  for (const std::string& text : all_gather_text(comm, mine.dump())) {
    for (const nlohmann::json& json : nlohmann::json::parse(text)) {
      reports[json.at("shard").get<std::size_t>()] = report_from(json);
    }
  }
  return reports;
}

void check_agreement(const std::string& directory, const std::vector<std::string>& names,
                     const std::vector<ShardReport>& reports) {
  const ShardHeader& first = reports[0].header;
  for (std::size_t i = 1; i < reports.size(); ++i) {
    const ShardHeader& other = reports[i].header;
    const auto differ = [&](const char* what) {
      fail(ExitStatus::bad_input,
           "{}/{} and {} have different {} (shards of one split agree) pack them again", directory,
           names[0], names[i], what);
    };
    if (first.encoded != other.encoded || (!first.encoded && first.image != other.image)) {
      fail(ExitStatus::bad_input,
           "{}/{} has {}, {} has {} (shards of one split have one shape) pack them again",
           directory, names[0], shape_text(first), names[i], shape_text(other));
    }
    if (first.classes != other.classes) differ("classes");
    if (reports[0].class_names_checksum != reports[i].class_names_checksum) differ("class_names");
    if (first.mean != other.mean) differ("mean");
    if (first.std != other.std) differ("std");
    if (first.image.channels != other.image.channels) differ("channels");
  }
}

std::uint32_t identity_of(const std::vector<std::string>& names,
                          const std::vector<ShardReport>& reports) {
  std::uint32_t identity = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const ShardHeader& header = reports[i].header;
    identity = crc32c(fmt::format("{} {} {}x{}x{} {} {:08x}\n", names[i], header.samples,
                                  header.image.height, header.image.width, header.image.channels,
                                  header.encoded_bytes, reports[i].contents.checksum),
                      identity);
  }
  return identity;
}

void fill_defaults(const std::vector<ShardReport>& reports, DatasetInfo& info) {
  const ShardHeader& first = reports[0].header;
  const std::int64_t channels = info.image.channels > 0 ? info.image.channels : 3;
  info.mean = first.mean;
  info.std = first.std;
  if (info.mean.empty()) {
    info.mean.assign(static_cast<std::size_t>(channels), 0.5F);
    info.notes.push_back(
        fmt::format("split {}: no attribute mean; 0.5 is taken for each channel", info.split));
  }
  if (info.std.empty()) {
    info.std.assign(info.mean.size(), 0.5F);
    info.notes.push_back(
        fmt::format("split {}: no attribute std; 0.5 is taken for each channel", info.split));
  }
  if (first.classes) {
    info.classes = *first.classes;
  } else {
    std::int64_t largest = 0;
    for (const ShardReport& report : reports) {
      largest = std::max(largest, report.contents.largest_label);
    }
    info.classes = largest + 1;
    info.notes.push_back(
        fmt::format("split {}: no attribute classes; {} classes, by the largest label {}",
                    info.split, info.classes, largest));
  }
  const auto slow = std::count_if(reports.begin(), reports.end(), [](const ShardReport& report) {
    return !report.header.contiguous;
  });
  if (slow > 0) {
    info.notes.push_back(
        fmt::format("split {}: {} of {} shards are chunked or compressed and read through HDF5, "
                    "which is slower; contiguous datasets are read past it",
                    info.split, slow, reports.size()));
  }
}

class ShardedDataset final : public Dataset {
 public:
  ShardedDataset(DatasetInfo info, std::vector<std::string> names, std::vector<ShardReport> reports)
      : info_(std::move(info)), names_(std::move(names)) {
    std::int64_t end = 0;
    for (ShardReport& report : reports) {
      end += report.header.samples;
      ends_.push_back(end);
      report.header.classes = info_.classes;  // so that each read checks the label
      report.header.class_names.clear();
      headers_.push_back(std::move(report.header));
    }
  }

  [[nodiscard]] const DatasetInfo& info() const noexcept override { return info_; }

  void read(std::int64_t index, RawSample& sample) const override {
    const Place place = locate(index);
    open(place.shard)->read(place.sample, sample);
  }

  [[nodiscard]] std::string describe(std::int64_t index) const override {
    const Place place = locate(index);
    return fmt::format("{}: sample {}", path(place.shard), place.sample);
  }

 private:
  struct Place {
    std::size_t shard;
    std::int64_t sample;
  };

  [[nodiscard]] Place locate(std::int64_t index) const {
    if (index < 0 || index >= info_.samples) {
      fail(ExitStatus::internal, "sample {} of {} was asked for (split {} of {})", index,
           info_.samples, info_.split, info_.directory);
    }
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto shard = static_cast<std::size_t>(end - ends_.begin());
    return {.shard = shard, .sample = index - (shard == 0 ? 0 : ends_[shard - 1])};
  }

  [[nodiscard]] std::string path(std::size_t shard) const {
    return info_.directory + "/" + names_[shard];
  }

  /// The shard, from those that are open or opened now; the one unused for longest is let go, and
  /// closes when its last reader is done.
  [[nodiscard]] std::shared_ptr<const ShardFile> open(std::size_t shard) const {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = open_.find(shard); found != open_.end()) {
        recent_.splice(recent_.begin(), recent_, found->second.place);
        return found->second.file;
      }
    }
    // Opened outside the lock: others read meanwhile. Two may open the same; one copy is kept.
    auto file = std::make_shared<const ShardFile>(path(shard), headers_[shard]);
    const std::lock_guard lock(mutex_);
    if (const auto found = open_.find(shard); found != open_.end()) return found->second.file;
    recent_.push_front(shard);
    open_.emplace(shard, OpenShard{.file = file, .place = recent_.begin()});
    if (open_.size() > max_open_shards) {
      open_.erase(recent_.back());
      recent_.pop_back();
    }
    return file;
  }

  struct OpenShard {
    std::shared_ptr<const ShardFile> file;
    std::list<std::size_t>::iterator place;
  };

  DatasetInfo info_;
  std::vector<std::string> names_;
  std::vector<ShardHeader> headers_;
  std::vector<std::int64_t> ends_;  ///< one past each shard's last sample
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::size_t, OpenShard> open_;
  mutable std::list<std::size_t> recent_;  ///< latest first
};

}  // namespace

std::unique_ptr<Dataset> open_dataset(const std::string& directory, const std::string& split,
                                      Communicator& comm) {
  // One rank lists: thousands of ranks would ask a file system's metadata server at once.
  std::vector<std::string> names;
  collectively(comm, [&] {
    if (comm.rank() == 0) names = list_shards(directory, split);
  });
  names = split_names(broadcast_text(comm, fmt::format("{}", fmt::join(names, "/"))));
  std::vector<ShardReport> reports = examine_all(directory, names, comm);
  // From here every rank has the same values, so that all throw or none.
  check_agreement(directory, names, reports);
  const ShardHeader& first = reports[0].header;
  DatasetInfo info{.directory = directory,
                   .split = split,
                   .image = first.image,
                   .encoded = first.encoded,
                   .class_names = first.class_names,
                   .identity = identity_of(names, reports)};
  for (const ShardReport& report : reports) info.samples += report.header.samples;
  if (info.samples == 0) {
    fail(ExitStatus::bad_input, "{} has no samples in split {} ({} empty shards) pack it again",
         directory, split, names.size());
  }
  fill_defaults(reports, info);
  return std::make_unique<ShardedDataset>(std::move(info), std::move(names), std::move(reports));
}

}  // namespace lockstep
