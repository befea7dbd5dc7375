#include "lockstep/data/dataset.hpp"

#include "lockstep/comm/broadcast_texts.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/shard_copies.hpp"
#include "shard_report.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <unordered_map>

namespace lockstep {
namespace {

/// Most shards a data set keeps open: an eighth of the process's file limit (usually 1024), since a
/// rank has two data sets. A shuffled epoch over more shards opens a file for almost every sample.
/// A shard read by HDF5 needs two descriptors and library memory, so fewer of those stay open.
std::size_t most_open_shards(bool by_library) noexcept {
  constexpr rlim_t few = 64;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;
  return static_cast<std::size_t>(by_library ? std::clamp<rlim_t>(limit.rlim_cur / 16, 4, few)
                                             : std::clamp<rlim_t>(limit.rlim_cur / 8, 8, 64 * few));
}

/// Thousands of ranks that list a directory would overload the file system's metadata server.
std::vector<std::string> list_on_rank_0(const std::string& directory, const std::string& split,
                                        Communicator& comm) {
  std::vector<std::string> names;
  collectively(comm, [&] {
    if (comm.rank() == 0) names = list_shards(directory, split);
  });
  return broadcast_texts(comm, names);
}

std::string shape_text(const ShardHeader& header) {
  return header.encoded ? "encoded images"
                        : fmt::format("images of {}x{}x{} (H, W, C)", header.image.height,
                                      header.image.width, header.image.channels);
}

void check_agreement(const std::string& directory, const std::vector<std::string>& names,
                     const std::vector<ShardReport>& reports) {
  const ShardHeader& first = reports[0].header;
  for (std::size_t i = 1; i < reports.size(); ++i) {
    const ShardHeader& other = reports[i].header;
    const auto differ = [&](const char* what) {
      fail(ExitStatus::bad_input,
           "{}/{} and {} have different {} (shards of one split agree); pack them again", directory,
           names[0], names[i], what);
    };
    if (first.encoded != other.encoded || (!first.encoded && first.image != other.image)) {
      fail(ExitStatus::bad_input,
           "{}/{} has {}, {} has {} (shards of one split have one shape); pack them again",
           directory, names[0], shape_text(first), names[i], shape_text(other));
    }
    if (first.classes != other.classes) differ("classes");
    if (reports[0].class_names_checksum != reports[i].class_names_checksum) differ("class_names");
    if (first.short_side != other.short_side) differ("short_side");
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

std::vector<std::int64_t> empty_classes(const std::vector<bool>& has_samples,
                                        std::int64_t classes) {
  std::vector<std::int64_t> empty;
  if (classes > most_counted_classes) return empty;
  for (std::int64_t label = 0; label < classes; ++label) {
    const auto index = static_cast<std::size_t>(label);
    if (index >= has_samples.size() || !has_samples[index]) empty.push_back(label);
  }
  return empty;
}

void fill_defaults(const std::vector<ShardReport>& reports, DatasetInfo& info) {
  const ShardHeader& first = reports[0].header;
  const std::int64_t channels = info.image.channels > 0 ? info.image.channels : 3;
  info.mean = first.mean;
  info.std = first.std;
  info.states_mean = !first.mean.empty();
  info.short_side = first.short_side;
  info.states_std = !first.std.empty();
  if (info.mean.empty()) {
    info.mean.assign(static_cast<std::size_t>(channels), 0.5F);
    info.notes.push_back(
        fmt::format("split {}: no attribute mean; 0.5 is its default", info.split));
  }
  if (info.std.empty()) {
    info.std.assign(info.mean.size(), 0.5F);
    info.notes.push_back(fmt::format("split {}: no attribute std; 0.5 is its default", info.split));
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
  info.empty_classes = empty_classes(reports[0].contents.has_samples, info.classes);
  const auto slow = std::count_if(reports.begin(), reports.end(), [](const ShardReport& report) {
    return !report.header.contiguous;
  });
  if (slow > 0) {
    info.notes.push_back(
        fmt::format("split {}: {} of {} shards are chunked or compressed, which is slower; "
                    "contiguous datasets are read sample by sample",
                    info.split, slow, reports.size()));
  }
}

class ShardedDataset final : public Dataset {
 public:
  ShardedDataset(DatasetInfo info, std::vector<std::string> names, std::vector<ShardReport> reports)
      : info_(std::move(info)), names_(std::move(names)), lost_(names_.size()) {
    std::int64_t end = 0;
    for (ShardReport& report : reports) {
      end += report.header.samples;
      ends_.push_back(end);
      report.header.classes = info_.classes;  // each read checks the label against it
      report.header.class_names.clear();
      headers_.push_back(std::move(report.header));
      bytes_.push_back(report.bytes);
      checksums_.push_back(report.contents.checksum);
    }
    most_open_ = most_open_shards(std::ranges::any_of(
        headers_, [](const ShardHeader& header) { return !header.contiguous; }));
  }

  [[nodiscard]] const DatasetInfo& info() const noexcept override { return info_; }

  void read(std::int64_t index, RawSample& sample) const override {
    const Place place = locate(index);
    open(place.shard)->read(place.sample, sample);
    if (!numbering_.empty()) sample.label = numbering_[static_cast<std::size_t>(sample.label)];
  }

  [[nodiscard]] std::string describe(std::int64_t index) const override {
    const Place place = locate(index);
    return fmt::format("{}: sample {}", path(place.shard), place.sample);
  }

  void renumber(RenumberedClasses classes) override {
    // Classes of the network that the data lacks have no samples either.
    std::vector<bool> has_samples(classes.class_names.size(), false);
    for (const std::int64_t number : classes.numbering) {
      has_samples[static_cast<std::size_t>(number)] = true;
    }
    for (const std::int64_t label : info_.empty_classes) {
      const std::int64_t number = classes.numbering[static_cast<std::size_t>(label)];
      has_samples[static_cast<std::size_t>(number)] = false;
    }
    info_.classes = std::ssize(classes.class_names);
    info_.empty_classes = empty_classes(has_samples, info_.classes);
    info_.class_names = std::move(classes.class_names);
    info_.identity = classes.identity;
    numbering_ = std::move(classes.numbering);
  }

  [[nodiscard]] std::vector<ShardToCopy> shards_to_copy() const override {
    std::vector<ShardToCopy> shards;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      shards.push_back({.directory = info_.directory,
                        .name = names_[i],
                        .bytes = bytes_[i],
                        .header = headers_[i],
                        .checksum = checksums_[i]});
    }
    return shards;
  }

  void read_copies(const std::shared_ptr<const ShardCopies>& copies, std::size_t first) override {
    copies_ = copies;
    first_copy_ = first;
  }

 private:
  struct Place {
    std::size_t shard;
    std::int64_t sample;
  };

  [[nodiscard]] Place locate(std::int64_t index) const {
    if (index < 0 || index >= info_.samples) {
      fail(ExitStatus::internal, "sample {} of {} was asked for (split {} of {}); report this",
           index, info_.samples, info_.split, info_.directory);
    }
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const auto shard = static_cast<std::size_t>(end - ends_.begin());
    return {.shard = shard, .sample = index - (shard == 0 ? 0 : ends_[shard - 1])};
  }

  [[nodiscard]] std::string path(std::size_t shard) const {
    return info_.directory + "/" + names_[shard];
  }

  /// Whether reads of the shard now use its copy.
  [[nodiscard]] bool has_moved(std::size_t shard) const noexcept {
    return copies_ && copies_->ready(first_copy_ + shard) &&
           !lost_[shard].load(std::memory_order_relaxed);
  }

  struct Opened {
    std::shared_ptr<const ShardFile> file;
    bool is_copy;
  };
  /// Opens the copy, or the original if the copy cannot be opened: scratch space vanishes when a
  /// job ends.
  [[nodiscard]] Opened open_file(std::size_t shard) const {
    if (has_moved(shard)) {
      try {
        return {.file = std::make_shared<const ShardFile>(copies_->path(first_copy_ + shard),
                                                          headers_[shard]),
                .is_copy = true};
      } catch (const Error& error) {
        if (error.status() == ExitStatus::bad_input) throw;
        lost_[shard].store(true, std::memory_order_relaxed);
      }
    }
    return {.file = std::make_shared<const ShardFile>(path(shard), headers_[shard]),
            .is_copy = false};
  }

  /// Returns the shard, opened if it is not open yet. Drops the least recently used shard, and an
  /// original whose copy is ready; a dropped file closes when its last reader is done.
  [[nodiscard]] std::shared_ptr<const ShardFile> open(std::size_t shard) const {
    const bool moved = has_moved(shard);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = open_.find(shard);
          found != open_.end() && found->second.opened.is_copy == moved) {
        recent_.splice(recent_.begin(), recent_, found->second.place);
        return found->second.opened.file;
      }
    }
    // Opens outside the lock so others can read. If two threads open one shard, one file is kept.
    Opened opened = open_file(shard);
    const std::lock_guard lock(mutex_);
    if (const auto found = open_.find(shard); found != open_.end()) {
      found->second.opened = opened;
      return opened.file;
    }
    recent_.push_front(shard);
    open_.emplace(shard, OpenShard{.opened = opened, .place = recent_.begin()});
    if (open_.size() > most_open_) {
      open_.erase(recent_.back());
      recent_.pop_back();
    }
    return opened.file;
  }

  struct OpenShard {
    Opened opened;
    std::list<std::size_t>::iterator place;
  };

  DatasetInfo info_;
  ClassNumbering numbering_;  ///< empty: labels are as stored
  std::vector<std::string> names_;
  std::vector<ShardHeader> headers_;
  std::vector<std::uint64_t> bytes_;  ///< size of each shard file
  std::vector<std::uint32_t> checksums_;
  std::vector<std::int64_t> ends_;  ///< one past each shard's last sample
  std::size_t most_open_ = 0;
  std::shared_ptr<const ShardCopies> copies_;
  std::size_t first_copy_ = 0;                   ///< index of the first shard's copy
  mutable std::vector<std::atomic<bool>> lost_;  ///< copies that have vanished
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::size_t, OpenShard> open_;
  mutable std::list<std::size_t> recent_;  ///< most recently used first
};

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): data of shards moves from it
void Dataset::renumber(RenumberedClasses /*classes*/) {
  fail(ExitStatus::internal, "{} has no class names to match; report this", info().directory);
}

std::vector<ShardToCopy> Dataset::shards_to_copy() const {
  return {};
}

void Dataset::read_copies(const std::shared_ptr<const ShardCopies>& /*copies*/,
                          std::size_t /*first*/) {}

std::uint32_t renumbered_identity(const DatasetInfo& info, const ClassNumbering& numbering,
                                  Communicator& comm) {
  const std::vector<std::string> names = list_on_rank_0(info.directory, info.split, comm);
  return identity_of(names, examine_shards(info.directory, names, comm, numbering));
}

std::unique_ptr<Dataset> open_dataset(const std::string& directory, const std::string& split,
                                      Communicator& comm) {
  std::vector<std::string> names = list_on_rank_0(directory, split, comm);
  std::vector<ShardReport> reports = examine_shards(directory, names, comm);
  // From here every rank has the same values, so all ranks throw or none.
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
    fail(ExitStatus::bad_input, "{} has no samples in split {} ({} empty shards); pack it again",
         directory, split, names.size());
  }
  fill_defaults(reports, info);
  return std::make_unique<ShardedDataset>(std::move(info), std::move(names), std::move(reports));
}

}  // namespace lockstep
