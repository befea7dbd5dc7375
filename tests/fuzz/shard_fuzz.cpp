#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/data/loader.hpp"
#include "lockstep/data/shard_file.hpp"

#include "data/shard_fixture.hpp"
#include "fuzz.hpp"
#include "hostile_hdf5.hpp"

#include <algorithm>

namespace lockstep::fuzz {
namespace {

using namespace lockstep::test;

constexpr std::int64_t max_reads = 16;

const Places& places() {
  static const Places all{.objects = {"images", "labels", "crc32c", "encoded", "offsets"},
                          .attributes = {{"/", "format"},
                                         {"/", "version"},
                                         {"/", "classes"},
                                         {"/", "class_names"},
                                         {"/", "mean"},
                                         {"/", "std"}}};
  return all;
}

/// Writes a valid shard, like `pack`, with sizes from the bytes.
void write_valid_shard(const std::string& path, FuzzedDataProvider& bytes) {
  TestShard shard;
  shard.samples = bytes.ConsumeIntegralInRange<std::int64_t>(0, 5);
  shard.height = bytes.ConsumeIntegralInRange<std::int64_t>(1, 9);
  shard.width = bytes.ConsumeIntegralInRange<std::int64_t>(1, 9);
  shard.channels = bytes.ConsumeBool() ? 3 : 1;
  shard.checksums = bytes.ConsumeBool();
  shard.mean.resize(static_cast<std::size_t>(shard.channels));
  shard.std.resize(static_cast<std::size_t>(shard.channels));
  if (!bytes.ConsumeBool()) {
    write_shard(path, shard);
    return;
  }
  std::vector<std::vector<std::uint8_t>> files;
  for (std::int64_t n = 0; n < shard.samples; ++n) {
    files.push_back(bytes.ConsumeIntegralInRange(0, 3) == 0
                        ? bytes.ConsumeBytes<std::uint8_t>(64)
                        : flat_jpeg({.height = static_cast<int>(shard.height),
                                     .width = static_cast<int>(shard.width),
                                     .channels = static_cast<int>(shard.channels)},
                                    static_cast<std::uint8_t>(n)));
  }
  write_encoded_shard(path, files, shard);
}

void load(const Dataset& dataset, FuzzedDataProvider& bytes) {
  const DatasetInfo& info = dataset.info();
  // A network of moderate size; the loader refuses images that do not fit it.
  LoaderOptions options{
      .image = {.channels = info.image.channels > 0 ? info.image.channels : 3,
                .height = bytes.ConsumeIntegralInRange<std::int64_t>(1, 12),
                .width = bytes.ConsumeIntegralInRange<std::int64_t>(1, 12)},
      .format = {.layout = bytes.ConsumeBool() ? ImageLayout::nhwc : ImageLayout::nchw},
      .mean = info.mean,
      .std = info.std,
      .augment = bytes.PickValueInArray({Augment::none, Augment::crop_flip, Augment::resized_crop}),
      .crop_padding = bytes.ConsumeIntegralInRange<std::int64_t>(0, 5),
      .batch_capacity = 3,
      .threads = 0,
      .shuffle = bytes.ConsumeBool()};
  if (options.image.channels > 64) return;
  const auto loader =
      make_loader(dataset, options, [&](std::int64_t n) -> std::optional<BatchRequest> {
        const std::int64_t count = std::min<std::int64_t>(3, info.samples - 3 * n);
        if (n >= 3 || count < 1) return std::nullopt;
        return BatchRequest{.epoch = 0, .first = 3 * n, .count = count};
      });
  while (loader->next()) {
  }
}

void read_as_rank(const std::string& directory, FuzzedDataProvider& bytes) {
  const auto comm = make_self_communicator();
  const std::unique_ptr<Dataset> dataset = open_dataset(directory, "train", *comm);
  RawSample sample;
  for (std::int64_t i = 0; i < std::min(dataset->info().samples, max_reads); ++i) {
    accepts([&] {
      dataset->read(i, sample);
      use(sample.bytes);
      // Values from the reader must be in range, whatever the file contains.
      if (sample.label < 0 || sample.label >= dataset->info().classes) __builtin_trap();
    });
  }
  load(*dataset, bytes);
}

}  // namespace

/// Writes a valid shard, or two of one split, replaces parts of them, and runs all code that reads
/// shards.
void run(Bytes input) {
  static const Scratch scratch;
  FuzzedDataProvider bytes(input.data(), input.size());
  std::filesystem::remove_all(scratch.path());
  std::filesystem::create_directories(scratch.path());
  const int shards = bytes.ConsumeIntegralInRange(0, 3) == 3 ? 2 : 1;
  for (int i = 0; i < shards; ++i) {
    const std::string path = fmt::format("{}/train-{:05}-of-{:05}.h5", scratch.path(), i, shards);
    write_valid_shard(path, bytes);
    {
      const h5::File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
      tamper(file, places(), bytes);
    }
    // Reading all of a shard that claims a million empty rows takes long and finds nothing.
    accepts([&] {
      if (ShardFile(path).header().samples <= max_reads) verify_shard(path);
    });
  }
  accepts([&] { read_as_rank(scratch.path(), bytes); });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
