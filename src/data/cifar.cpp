#include "lockstep/data/cifar.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/data/pack_source.hpp"
#include "pack_file.hpp"

#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct CifarFiles {
  CifarLayout layout;
  std::vector<std::string> train;
  std::string val;
  std::string names;
};

const CifarFiles& files_in(const std::string& directory) {
  static const CifarFiles ten{.layout = {.label_bytes = 1, .classes = 10},
                              .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin"},
                              .val = "test_batch.bin",
                              .names = "batches.meta.txt"};
  static const CifarFiles hundred{.layout = {.label_bytes = 2, .classes = 100},
                                  .train = {"train.bin"},
                                  .val = "test.bin",
                                  .names = "fine_label_names.txt"};
  for (const CifarFiles* files : {&ten, &hundred}) {
    if (is_there((fs::path(directory) / files->train.front()).string())) return *files;
  }
  fail(ExitStatus::no_input,
       "{} holds neither data_batch_1.bin (CIFAR-10) nor train.bin (CIFAR-100) (--from cifar reads "
       "the binary version); check --input",
       directory);
}

void append(PixelPart& part, const std::string& path, const CifarLayout& layout) {
  const CifarBatch batch = parse_cifar(read_whole_file(path), layout, path);
  part.images.insert(part.images.end(), batch.images.begin(), batch.images.end());
  part.labels.insert(part.labels.end(), batch.labels.begin(), batch.labels.end());
}

}  // namespace

CifarBatch parse_cifar(std::span<const std::byte> bytes, const CifarLayout& layout,
                       const std::string& name) {
  constexpr std::size_t plane = cifar_side * cifar_side;
  constexpr std::size_t pixels = plane * cifar_channels;
  const std::size_t label_bytes = static_cast<std::size_t>(layout.label_bytes);
  const std::size_t record = label_bytes + pixels;
  if (bytes.empty() || bytes.size() % record != 0) {
    fail(ExitStatus::bad_input,
         "{}: {} bytes is not a whole number of records of {} bytes (truncated, or not the binary "
         "version of CIFAR-{}); fetch it again",
         name, bytes.size(), record, layout.classes);
  }
  const std::size_t count = bytes.size() / record;
  CifarBatch batch;
  batch.labels.resize(count);
  batch.images.resize(count * pixels);
  for (std::size_t i = 0; i < count; ++i) {
    const auto source = bytes.subspan(i * record, record);
    const auto label = std::to_integer<std::uint8_t>(source[label_bytes - 1]);
    if (label >= layout.classes) {
      fail(ExitStatus::bad_input,
           "{}: sample {} has label {} (CIFAR-{} has labels 0 to {}); fetch the file again", name,
           i, label, layout.classes, layout.classes - 1);
    }
    batch.labels[i] = label;
    std::byte* image = batch.images.data() + i * pixels;
    for (std::size_t pixel = 0; pixel < plane; ++pixel) {
      for (std::size_t channel = 0; channel < cifar_channels; ++channel) {
        *image++ = source[label_bytes + channel * plane + pixel];
      }
    }
  }
  return batch;
}

std::unique_ptr<PackSource> open_cifar_source(const std::string& directory) {
  const CifarFiles& files = files_in(directory);
  PixelPart train;
  PixelPart val;
  const fs::path base(directory);
  for (const std::string& name : files.train) append(train, (base / name).string(), files.layout);
  if (is_there((base / files.val).string())) append(val, (base / files.val).string(), files.layout);

  std::vector<std::string> used{(base / files.names).string()};
  for (const std::string& name : files.train) used.push_back((base / name).string());
  if (!val.labels.empty()) used.push_back((base / files.val).string());
  SourceInfo info{.image = {.channels = cifar_channels, .height = cifar_side, .width = cifar_side},
                  .encoded = false,
                  .classes = files.layout.classes,
                  .class_names = read_lines((base / files.names).string()),
                  .fates = entries_beside(directory, used)};
  if (!info.class_names.empty() &&
      info.class_names.size() != static_cast<std::size_t>(info.classes)) {
    fail(ExitStatus::bad_input, "{}: holds {} class names (CIFAR-{} has {}); fetch it again",
         (base / files.names).string(), info.class_names.size(), info.classes, info.classes);
  }
  return make_pixel_source(std::move(info), std::move(train), std::move(val));
}

}  // namespace lockstep
