#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/loader.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>

namespace {

using namespace lockstep;

void dump(const std::string& directory) {
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory, "train", *comm);
  const DatasetInfo& info = dataset->info();
  fmt::print("samples {} classes {} image {}x{}x{} notes {}\n", info.samples, info.classes,
             info.image.height, info.image.width, info.image.channels, info.notes.size());
  RawSample sample;
  std::uint32_t checksum = 0;
  const std::int64_t step = std::max<std::int64_t>(1, info.samples / 1000);
  for (std::int64_t i = 0; i < info.samples; i += step) {
    dataset->read(i, sample);
    checksum = crc32c(std::as_bytes(std::span(&sample.label, 1)), crc32c(sample.bytes, checksum));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("crc {:08x}\npeak {}\n", checksum, usage.ru_maxrss);
  for (const std::string& note : info.notes) fmt::print("{}\n", note);
}

/// Leaves each file to the engine, so that batches tell which region it has to decode.
class LeftToEngine final : public DeviceDecoding {
 public:
  [[nodiscard]] std::string description() const override { return "none"; }
  [[nodiscard]] std::unique_ptr<FileFilter> make_filter() override {
    struct Any final : FileFilter {
      bool accepts(std::span<const std::byte>) override { return true; }
    };
    return std::make_unique<Any>();
  }
  void finish() noexcept override {}
  [[nodiscard]] Counts counts() const noexcept override { return {}; }
};

/// Training's samples in the order of the shards, one a batch.
std::unique_ptr<Loader> training_loader(const Dataset& dataset, std::int64_t size,
                                        std::int64_t epochs, const InputFormat& format) {
  const std::int64_t samples = dataset.info().samples;
  return make_loader(dataset,
                     {.image = {.channels = 3, .height = size, .width = size},
                      .format = format,
                      .mean = {0.485F, 0.456F, 0.406F},
                      .std = {0.229F, 0.224F, 0.225F},
                      .augment = Augment::resized_crop,
                      .batch_capacity = 1,
                      .threads = 0,
                      .shuffle = false},
                     [=](std::int64_t n) -> std::optional<BatchRequest> {
                       if (n == epochs * samples) return std::nullopt;
                       return BatchRequest{.epoch = n / samples, .first = n % samples, .count = 1};
                     });
}

void dump_crops(const Dataset& dataset, std::int64_t size, std::int64_t epochs) {
  LeftToEngine decoding;
  const bool encoded = dataset.info().encoded;
  const auto loader =
      training_loader(dataset, size, epochs,
                      {.content = ImageContent::pixels, .decoding = encoded ? &decoding : nullptr});
  while (const auto loaded = loader->next()) {
    const PixelImages& pixels = loaded->batch.pixels;
    const PixelCut& cut = *pixels.cuts;
    if (const EncodedImage* const file = pixels.encoded.images; file != nullptr) {
      const auto& [rows, columns, filter] = file->resize;
      fmt::print("{} {} {} {} {} {} {}\n", file->height, file->width, rows.first, columns.first,
                 rows.source, columns.source, cut.flip);
    } else {
      fmt::print("{} {} {} {} {} {} {}\n", pixels.height, pixels.width, cut.top, cut.left,
                 cut.height, cut.width, cut.flip);
    }
  }
}

void dump_values(const Dataset& dataset, std::int64_t size) {
  const auto loader = training_loader(dataset, size, 1, {});
  while (const auto loaded = loader->next()) {
    std::fwrite(loaded->batch.values, sizeof(float), static_cast<std::size_t>(3 * size * size),
                stdout);
  }
}

void dump_training(const std::string& directory, std::string_view kind, std::int64_t size,
                   std::int64_t epochs) {
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory, "train", *comm);
  if (kind == "crops") {
    dump_crops(*dataset, size, epochs);
  } else {
    dump_values(*dataset, size);
  }
}

}  // namespace

/// dataset_dump DIR: prints what the reader finds in split `train` of a directory: a line of
/// properties, the CRC-32C of up to 1000 evenly spaced samples, the peak memory in KiB, then the
/// notes. dataset_dump DIR crops SIZE EPOCHS: prints what --augment resized-crop takes of each
/// sample, in the order of the shards: height and width of the image; top, left, height and width
/// of the crop; whether it is mirrored. dataset_dump DIR values SIZE: writes the values (N, 3,
/// SIZE, SIZE), fp32, that the network gets of the first epoch's crops, with ImageNet's mean and
/// std. Exits with the status of an error, as the program does.
int main(int count, char** arguments) {
  try {
    if (count == 2) {
      dump(arguments[1]);
    } else {
      dump_training(arguments[1], arguments[2], std::stoll(arguments[3]),
                    count == 5 ? std::stoll(arguments[4]) : 1);
    }
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}
