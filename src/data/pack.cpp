#include "lockstep/data/pack.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/data/pixel_statistics.hpp"
#include "lockstep/data/sample_order.hpp"
#include "lockstep/data/shard_file.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "shard_writer.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// One file to write.
struct ShardTask {
  SourcePart part;
  std::int64_t shard;
  std::int64_t shards;
  Slice positions;  ///< in the part's order
};

/// A written shard without attributes, under a temporary name; removed unless published.
class UnpublishedShard final {
 public:
  UnpublishedShard(const std::string& directory, const std::string& name)
      : target_((fs::path(directory) / name).string()),
        path_((fs::path(directory) / ("." + name + ".tmp-pack")).string()) {}
  UnpublishedShard(const UnpublishedShard&) = delete;
  UnpublishedShard& operator=(const UnpublishedShard&) = delete;
  UnpublishedShard(UnpublishedShard&& other) noexcept
      : target_(std::move(other.target_)), path_(std::exchange(other.path_, {})) {}
  UnpublishedShard& operator=(UnpublishedShard&&) = delete;
  ~UnpublishedShard() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove(path_, ignored);
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Adds the attributes and renames the file; returns its size.
  std::uint64_t publish(const ShardAttributes& attributes) {
    write_atomically(target_, [&](const std::string& temporary) {
      std::error_code error;
      fs::rename(path_, temporary, error);
      if (error) {
        fail(ExitStatus::cannot_write, "cannot rename {} ({}); pack again", path_, error.message());
      }
      finish_shard(temporary, attributes);
    });
    path_.clear();
    return fs::file_size(target_);
  }

 private:
  std::string target_;
  std::string path_;
};

SampleOrder order_of(const PackSource& source, SourcePart part, std::uint64_t seed) {
  PhiloxStream stream(seed, RandomPurpose::pack_order, 0, part == SourcePart::train ? 0 : 1);
  return {source.samples(part), stream.next_u64()};
}

std::uint64_t bytes_of(const PackSource& source, SourcePart part) {
  const std::int64_t samples = source.samples(part);
  if (samples == 0) return 0;
  if (!source.info().encoded) {
    return static_cast<std::uint64_t>(samples) * source.bytes_of(part, 0);
  }
  std::uint64_t total = 0;
  for (std::int64_t i = 0; i < samples; ++i) total += source.bytes_of(part, i);
  return total;
}

std::vector<ShardTask> plan(const PackSource& source, const PackOptions& options) {
  const std::int64_t train = source.samples(SourcePart::train);
  const std::int64_t val = source.samples(SourcePart::val);
  if (train == 0) {
    fail(ExitStatus::bad_input,
         "the source holds no training samples (nothing to pack); check --input");
  }
  if (options.shards && (*options.shards < 1 || *options.shards > train)) {
    fail(ExitStatus::usage,
         "--shards {} for {} training samples (a shard holds at least one); use 1 to {}",
         *options.shards, train, train);
  }
  std::vector<ShardTask> tasks;
  const auto add = [&](SourcePart part, std::int64_t samples, std::int64_t shards) {
    for (std::int64_t i = 0; i < shards; ++i) {
      tasks.push_back(
          {.part = part, .shard = i, .shards = shards, .positions = slice_of(samples, shards, i)});
    }
  };
  if (options.shards) {
    add(SourcePart::train, train, *options.shards);
    // Test shards hold at most as many samples as training shards.
    if (val > 0) {
      const std::int64_t size = train / *options.shards;
      add(SourcePart::val, val, (val + size - 1) / size);
    }
  } else {
    for (const SourcePart part : {SourcePart::train, SourcePart::val}) {
      const std::int64_t samples = source.samples(part);
      if (samples == 0) continue;
      add(part, samples, shards_for(bytes_of(source, part), samples, options.shard_mb));
    }
  }
  return tasks;
}

std::vector<fs::path> shards_in(const std::string& directory) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator entry(directory, ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const auto name = parse_shard_name(entry->path().filename().string());
    if (name && (name->split == "train" || name->split == "val")) found.push_back(entry->path());
  }
  return found;
}

void prepare_directory(const PackOptions& options) {
  std::error_code error;
  fs::create_directories(options.directory, error);
  if (error) {
    fail(ExitStatus::cannot_write, "cannot create {} ({}); choose another --output",
         options.directory, error.message());
  }
  if (const auto found = shards_in(options.directory); !found.empty() && !options.overwrite) {
    fail(ExitStatus::usage,
         "{} holds {} shards already, {} among them (they would be replaced); choose another "
         "--output or give --overwrite",
         options.directory, found.size(), found.front().filename().string());
  }
  remove_stale_temporaries(options.directory);
}

void remove_old_shards(const std::string& directory) {
  for (const fs::path& path : shards_in(directory)) {
    std::error_code error;
    fs::remove(path, error);
    if (error) {
      fail(ExitStatus::cannot_write, "cannot remove {} ({}); remove it and pack again",
           path.string(), error.message());
    }
  }
}

/// Writes this rank's shards to temporary names.
class ShardPacker final {
 public:
  ShardPacker(PackSource& source, const PackOptions& options, PixelStatistics& statistics)
      : source_(source), options_(options), statistics_(statistics) {}

  std::vector<UnpublishedShard> pack(const std::vector<ShardTask>& tasks) {
    for (const ShardTask& task : tasks) total_ += task.positions.count;
    std::vector<UnpublishedShard> written;
    written.reserve(tasks.size());
    for (const ShardTask& task : tasks) written.push_back(pack(task));
    return written;
  }

 private:
  UnpublishedShard pack(const ShardTask& task) {
    UnpublishedShard written(options_.directory,
                             packed_shard_name(task.part, task.shard, task.shards));
    const SampleOrder order = order_of(source_, task.part, options_.seed);
    std::vector<std::uint64_t> sizes;
    for (std::int64_t p = task.positions.begin; p < task.positions.end(); ++p) {
      sizes.push_back(source_.bytes_of(task.part, order.at(0, p)));
    }
    ShardWriter writer(written.path(), source_.info(), sizes);
    for (std::int64_t p = task.positions.begin; p < task.positions.end(); ++p) {
      const auto pixels = source_.read(task.part, order.at(0, p), sample_);
      if (task.part == SourcePart::train) statistics_.add(pixels);
      writer.append(sample_);
      if (options_.progress) options_.progress(++done_, total_);
    }
    writer.close();
    return written;
  }

  PackSource& source_;
  const PackOptions& options_;
  PixelStatistics& statistics_;
  RawSample sample_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
};

void require_same_source(const PackSource& source, Communicator& comm) {
  const std::int64_t mine = source.info().identity;
  if (comm.all_reduce_value(mine, ReduceOp::min) != comm.all_reduce_value(mine, ReduceOp::max)) {
    fail(ExitStatus::bad_input,
         "the ranks see different files (--input must be on storage that all nodes share); move it "
         "there");
  }
}

}  // namespace

std::string packed_shard_name(SourcePart part, std::int64_t shard, std::int64_t shards) {
  return fmt::format("{}-{:05}-of-{:05}.h5", part == SourcePart::train ? "train" : "val", shard,
                     shards);
}

std::int64_t shards_for(std::uint64_t bytes, std::int64_t samples, double shard_mb) {
  const double wanted = std::ceil(static_cast<double>(bytes) / (shard_mb * 0x1p20));
  return std::clamp(static_cast<std::int64_t>(wanted), std::int64_t{1}, samples);
}

PackResult pack(PackSource& source, const PackOptions& options, Communicator& comm) {
  require_same_source(source, comm);
  std::vector<ShardTask> tasks;
  collectively(comm, [&] {
    tasks = plan(source, options);
    if (comm.rank() == 0) prepare_directory(options);
  });

  std::vector<ShardTask> mine;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (static_cast<int>(i % static_cast<std::size_t>(comm.size())) == comm.rank()) {
      mine.push_back(tasks[i]);
    }
  }
  PixelStatistics statistics(source.info().encoded ? 3 : source.info().image.channels);
  std::vector<UnpublishedShard> written;
  collectively(comm, [&] { written = ShardPacker(source, options, statistics).pack(mine); });
  comm.all_reduce(statistics.counts());

  const ShardAttributes attributes{.classes = source.info().classes,
                                   .class_names = source.info().class_names,
                                   .mean = statistics.mean(),
                                   .std = statistics.standard_deviation()};
  // Remove old shards only now that all new ones are written.
  collectively(comm, [&] {
    if (comm.rank() == 0) remove_old_shards(options.directory);
  });
  std::uint64_t bytes = 0;
  collectively(comm, [&] {
    for (UnpublishedShard& shard : written) bytes += shard.publish(attributes);
  });

  const auto shards_of = [&](SourcePart part) {
    return std::count_if(tasks.begin(), tasks.end(),
                         [&](const ShardTask& task) { return task.part == part; });
  };
  return {.train_samples = source.samples(SourcePart::train),
          .val_samples = source.samples(SourcePart::val),
          .train_shards = shards_of(SourcePart::train),
          .val_shards = shards_of(SourcePart::val),
          .classes = attributes.classes,
          .bytes = comm.all_reduce_value(bytes),
          .mean = attributes.mean,
          .std = attributes.std};
}

}  // namespace lockstep
