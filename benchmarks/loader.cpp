// The loader against a plain pread of the same bytes: one epoch in shuffled order, crop and flip,
// into the engine's format; then the shards' files read front to back in 1 MiB pieces by one
// thread.
#include "benchmark.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/train/batch_geometry.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

namespace lockstep::benchmark {
namespace {

/// Bytes and seconds of reading every shard of the split from front to back.
std::pair<std::int64_t, double> plain_read(const std::string& directory) {
  std::vector<char> piece(std::size_t{1} << 20);
  std::int64_t total = 0;
  const double begin = now();
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (!entry.path().filename().string().starts_with("train-")) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    std::int64_t offset = 0;
    for (ssize_t n; (n = ::pread(file, piece.data(), piece.size(), offset)) > 0; offset += n) {
    }
    total += offset;
    ::close(file);
  }
  return {total, now() - begin};
}

}  // namespace

BenchResult bench_loader(const BenchOptions& options, const BenchContext& context) {
  if (options.data.empty()) {
    fail(ExitStatus::usage, "bench loader reads shards (none given) give --data DIR");
  }
  Communicator& comm = context.comm;
  const auto data = open_dataset(options.data, "train", comm);
  const DatasetInfo& info = data->info();
  ImageShape image = info.image;
  if (info.encoded) image = {.channels = 3, .height = 224, .width = 224};
  const BatchGeometry geometry{.samples = info.samples,
                               .global_batch = options.batch_size * comm.size(),
                               .world_size = comm.size(),
                               .rank = comm.rank(),
                               .accumulate = 1};
  std::vector<double> seconds;
  std::vector<double> plain_seconds;
  std::int64_t plain_bytes = 0;
  for (std::int64_t round = 0; round < 6; ++round) {
    const auto loader =
        make_loader(*data,
                    {.image = image,
                     .format = {},
                     .mean = info.mean,
                     .std = info.std,
                     .augment = info.encoded ? Augment::resized_crop : Augment::crop_flip,
                     .batch_capacity = options.batch_size,
                     .threads = static_cast<int>(options.loader_threads)},
                    plan_training_batches(geometry, {.epoch = round, .position = 0},
                                          geometry.steps_per_epoch()));
    comm.barrier();
    const double begin = now();
    while (loader->next()) {
    }
    const double elapsed = comm.all_reduce_value(now() - begin, ReduceOp::max);
    const auto [bytes, plain] = plain_read(options.data);
    if (round == 0) continue;  // the page cache is warm from here on
    seconds.push_back(elapsed);
    plain_seconds.push_back(plain);
    plain_bytes = bytes;
  }
  const Sample sample = summarize(seconds);
  const Sample plain = summarize(plain_seconds);
  const auto images = static_cast<double>(geometry.epoch_samples());
  const double bytes =
      images * static_cast<double>(plain_bytes) / static_cast<double>(info.samples);
  BenchResult result;
  result.columns = {"reader", "threads", "images/s", "GB/s", "of plain"};
  const double rate = bytes / sample.median;
  const double plain_rate = static_cast<double>(plain_bytes) / plain.median;
  result.rows.push_back({"loader", std::to_string(options.loader_threads),
                         fmt::format("{:.0f}", images / sample.median),
                         fmt::format("{:.3f}", rate / 1e9),
                         fmt::format("{:.3f}", rate / plain_rate)});
  result.rows.push_back({"plain pread", "1",
                         fmt::format("{:.0f}", static_cast<double>(info.samples) / plain.median),
                         fmt::format("{:.3f}", plain_rate / 1e9), "1"});
  result.json = {{"benchmark", "loader"},
                 {"samples", info.samples},
                 {"loader_threads", options.loader_threads},
                 {"images_per_second", images / sample.median},
                 {"bytes_per_second", rate},
                 {"plain_bytes_per_second", plain_rate},
                 {"seconds_p10", sample.p10},
                 {"seconds_p90", sample.p90}};
  return result;
}

}  // namespace lockstep::benchmark
