// Compares the loader (one epoch in shuffled order, augmented, in the engine's format) with plain
// reads by one thread: one pread per image in random order, and a sequential read of all files in
// blocks of 1 MiB. Also compares it with a bound for any loader: one pread per image plus a fill of
// the memory of its fp32 values. Measured with the files in the page cache and from disk.
#include "benchmark.hpp"

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/shard_file.hpp"
#include "lockstep/train/batch_geometry.hpp"
#include "lockstep/train/run_plan.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>

namespace lockstep::benchmark {
namespace {

[[noreturn]] void fail_to_read(const std::filesystem::path& path) {
  fail(ExitStatus::no_input, "{} cannot be read ({}); check that it is there and permitted",
       path.string(), std::strerror(errno));
}

/// The shard files of the training split.
class Files final {
 public:
  explicit Files(const std::string& directory) {
    for (const std::string& name : list_shards(directory, "train")) {
      const std::filesystem::path path = std::filesystem::path(directory) / name;
      const std::uint64_t bytes = require_input(path);
      bytes_ += static_cast<std::int64_t>(bytes);
      sizes_.push_back(static_cast<std::int64_t>(bytes));
      paths_.emplace_back(path);
      files_.push_back(open_input(path));
    }
  }
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_; }

  /// Drops the files from the page cache.
  void forget() const {
    for (const Descriptor& file : files_) {
      ::fsync(file.get());
      ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    }
  }
  void read_front_to_back() {
    for (std::size_t i = 0; i < files_.size(); ++i) {
      for (std::int64_t at = 0; at < sizes_[i]; at += read(i, at, std::size_t{1} << 20)) {
      }
    }
  }
  struct Pieces {
    std::int64_t count;
    std::int64_t bytes;   ///< bytes per read
    std::int64_t values;  ///< floats filled per read
  };
  /// Reads from random offsets, one read after another.
  void read_pieces(const Pieces& pieces) {
    constexpr std::int64_t ahead = 256;  // more than the CPU caches hold, like a loader's batches
    filled_.resize(static_cast<std::size_t>(pieces.values * ahead));
    PhiloxStream random(0, RandomPurpose::synthetic_data, 0, 0);
    for (std::int64_t i = 0; i < pieces.count; ++i) {
      const std::size_t file = random.next_below(static_cast<std::uint32_t>(files_.size()));
      const std::int64_t room = std::max<std::int64_t>(1, sizes_[file] - pieces.bytes);
      read(file, random.next_below(static_cast<std::uint32_t>(room)),
           static_cast<std::size_t>(pieces.bytes));
      std::fill_n(filled_.begin() + pieces.values * (i % ahead), pieces.values,
                  static_cast<float>(i));
    }
  }

 private:
  std::int64_t read(std::size_t file, std::int64_t at, std::size_t size) {
    piece_.resize(std::max(piece_.size(), size));
    const std::int64_t count = ::pread(files_[file].get(), piece_.data(), size, at);
    if (count < 0) fail_to_read(paths_[file]);
    return std::max<std::int64_t>(1, count);
  }
  std::vector<std::filesystem::path> paths_;
  std::vector<Descriptor> files_;
  std::vector<std::int64_t> sizes_;
  std::int64_t bytes_ = 0;
  std::vector<char> piece_;
  std::vector<float> filled_;
};

/// Times `work` on all ranks: seconds of the slowest.
template <typename Work>
double time_together(Communicator& comm, Work&& work) {
  comm.barrier();
  double seconds = 0;
  collectively(comm, [&] {
    const double begin = now();
    work();
    seconds = now() - begin;
  });
  return comm.all_reduce_value(seconds, ReduceOp::max);
}

/// Loads one epoch.
void load_epoch(const Dataset& data, const ImageShape& image, const BatchGeometry& geometry,
                const Config& config, const std::vector<int>& cores, std::int64_t epoch) {
  const DatasetInfo& info = data.info();
  const auto loader = make_loader(
      data,
      {.image = image,
       .format = {},
       .mean = info.mean,
       .std = info.std,
       .augment = info.encoded ? Augment::resized_crop : Augment::crop_flip,
       .auto_augment = auto_augment_options(config),
       .batch_capacity = config.batch_size,
       .threads = static_cast<int>(config.loader_threads),
       .cores = cores},
      plan_training_batches(geometry, {.epoch = epoch, .position = 0}, geometry.steps_per_epoch()));
  while (loader->next()) {
  }
}

/// Median seconds of each reader.
struct ReadSeconds {
  double loader = 0;
  double each = 0;        ///< pread of each image
  double filled = 0;      ///< and filling its values
  double sequential = 0;  ///< pread from front to back
};

/// `prepare_and_time(work)` returns the seconds of one run.
template <typename Time>
ReadSeconds measure_readers(const std::function<void(std::int64_t)>& load, Files& files,
                            Files::Pieces pieces, std::int64_t values, Time&& prepare_and_time) {
  std::vector<double> loading;
  std::vector<double> each;
  std::vector<double> filled;
  std::vector<double> sequential;
  for (std::int64_t round = 0; round < 6; ++round) {
    const double first = prepare_and_time([&] { load(round); });
    pieces.values = 0;
    const double second = prepare_and_time([&] { files.read_pieces(pieces); });
    pieces.values = values;
    const double third = prepare_and_time([&] { files.read_pieces(pieces); });
    const double fourth = prepare_and_time([&] { files.read_front_to_back(); });
    if (round == 0) continue;  // the cache is warm from here on
    loading.push_back(first);
    each.push_back(second);
    filled.push_back(third);
    sequential.push_back(fourth);
  }
  return {.loader = summarize(loading).median,
          .each = summarize(each).median,
          .filled = summarize(filled).median,
          .sequential = summarize(sequential).median};
}

struct Row {
  const char* reader;
  const char* place;  ///< of the files
  std::int64_t threads;
  double images_per_second;
  double bytes_per_second;
  double of_plain;  ///< of the rate of a pread of each image
};

void add_row(BenchResult& result, const Row& row) {
  result.rows.push_back({row.reader, row.place, std::to_string(row.threads),
                         fmt::format("{:.0f}", row.images_per_second),
                         fmt::format("{:.3f}", row.bytes_per_second / 1e9),
                         fmt::format("{:.2f}", row.of_plain)});
  result.json["rows"].push_back({{"reader", row.reader},
                                 {"files_in", row.place},
                                 {"threads", row.threads},
                                 {"images_per_second", row.images_per_second},
                                 {"bytes_per_second", row.bytes_per_second},
                                 {"of_each_by_pread", row.of_plain}});
}

}  // namespace

BenchResult bench_loader(const BenchOptions& options, const BenchContext& context) {
  const Config& config = options.config;
  if (config.data.empty()) {
    fail(ExitStatus::usage, "bench loader reads shards (none given); give --data DIR");
  }
  Communicator& comm = context.comm;
  const auto data = open_dataset(config.data, "train", comm);
  const DatasetInfo& info = data->info();
  ImageShape image = info.image;
  if (info.encoded) image = {.channels = 3, .height = 224, .width = 224};
  const BatchGeometry geometry{.samples = info.samples,
                               .global_batch = config.batch_size * comm.size(),
                               .world_size = comm.size(),
                               .rank = comm.rank(),
                               .accumulate = 1};
  std::optional<Files> opened;
  collectively(comm, [&] { opened.emplace(config.data); });
  Files& files = *opened;
  const auto images = static_cast<double>(geometry.epoch_samples());
  const double bytes =
      images * static_cast<double>(files.bytes()) / static_cast<double>(info.samples);
  // Each rank makes one read per image that it loads.
  const Files::Pieces pieces{.count = geometry.epoch_samples() / comm.size(),
                             .bytes = files.bytes() / info.samples,
                             .values = 0};
  BenchResult result;
  result.columns = {"reader", "files in", "threads", "images/s", "GB/s", "of each by pread"};
  result.json = {{"benchmark", "loader"},
                 {"samples", info.samples},
                 {"bytes", files.bytes()},
                 {"encoded", info.encoded},
                 {"loader_threads", config.loader_threads},
                 {"rows", Json::array()}};
  for (const bool cached : {true, false}) {
    const ReadSeconds seconds = measure_readers(
        [&](std::int64_t epoch) {
          load_epoch(*data, image, geometry, config, context.binding.allowed, epoch);
        },
        files, pieces, image.channels * image.height * image.width,
        [&](auto&& work) {
          if (!cached) files.forget();
          return time_together(comm, work);
        });
    const double plain = bytes / seconds.each;
    const auto add = [&](const char* reader, std::int64_t threads, double read, double took) {
      add_row(result, {.reader = reader,
                       .place = cached ? "cache" : "disk",
                       .threads = threads,
                       .images_per_second = read / took / bytes * images,
                       .bytes_per_second = read / took,
                       .of_plain = read / took / plain});
    };
    add("loader", config.loader_threads, bytes, seconds.loader);
    add("pread of each image", 1, bytes, seconds.each);
    add("pread and fill of each", 1, bytes, seconds.filled);
    add("pread front to back", 1, static_cast<double>(files.bytes()), seconds.sequential);
  }
  return result;
}

}  // namespace lockstep::benchmark
