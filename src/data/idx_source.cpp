#include "lockstep/core/error.hpp"
#include "lockstep/data/idx.hpp"
#include "lockstep/data/pack_source.hpp"
#include "pack_file.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// NAME, or else NAME.gz; nullopt if neither exists. Some copies have "images.idx3" for
/// "images-idx3".
std::optional<std::string> find_file(const std::string& directory, const std::string& name) {
  std::string dotted = name;
  dotted[dotted.find("-idx")] = '.';
  for (const std::string& candidate : {name, name + ".gz", dotted, dotted + ".gz"}) {
    const fs::path path = fs::path(directory) / candidate;
    if (is_there(path.string())) return path.string();
  }
  return std::nullopt;
}

std::string require_file(const std::string& directory, const std::string& name) {
  if (auto path = find_file(directory, name)) return *path;
  fail(ExitStatus::no_input,
       "{} holds neither {} nor {}.gz (--from mnist reads MNIST's four files); check --input",
       directory, name, name);
}

IdxFile read_idx(const std::string& path, std::size_t axes) {
  IdxFile file = parse_idx(read_whole_file(path), path);
  if (file.dims.size() != axes) {
    fail(ExitStatus::bad_input,
         "{} has {} axes, expected {} (it holds something else); check --input", path,
         file.dims.size(), axes);
  }
  return file;
}

struct LoadedPart {
  std::int64_t height = 0;
  std::int64_t width = 0;
  PixelPart pixels;
  std::vector<std::string> files;
};

LoadedPart load_part(const std::string& directory, const std::string& prefix) {
  const std::string image_path = require_file(directory, prefix + "-images-idx3-ubyte");
  const std::string label_path = require_file(directory, prefix + "-labels-idx1-ubyte");
  IdxFile images = read_idx(image_path, 3);
  const IdxFile labels = read_idx(label_path, 1);
  if (images.dims[0] != labels.dims[0]) {
    fail(ExitStatus::bad_input,
         "{} holds {} images, but {} holds {} labels (they must be equal); get both files again",
         image_path, images.dims[0], label_path, labels.dims[0]);
  }
  if (images.dims[0] == 0 || images.dims[1] == 0 || images.dims[2] == 0) {
    fail(ExitStatus::bad_input, "{} has {} images of {}x{} pixels (nothing to pack); check --input",
         image_path, images.dims[0], images.dims[1], images.dims[2]);
  }
  LoadedPart part{.height = images.dims[1],
                  .width = images.dims[2],
                  .pixels = {},
                  .files = {image_path, label_path}};
  part.pixels.images = std::move(images.values);
  part.pixels.labels.reserve(labels.values.size());
  for (const std::byte label : labels.values) {
    part.pixels.labels.push_back(std::to_integer<std::uint8_t>(label));
  }
  return part;
}

}  // namespace

std::unique_ptr<PackSource> open_mnist_source(const std::string& directory) {
  LoadedPart train = load_part(directory, "train");
  LoadedPart val;
  if (find_file(directory, "t10k-images-idx3-ubyte") ||
      find_file(directory, "t10k-labels-idx1-ubyte")) {
    val = load_part(directory, "t10k");
    if (val.height != train.height || val.width != train.width) {
      fail(ExitStatus::bad_input,
           "{}: the test images are {}x{} pixels, the training images {}x{} (they must be equal); "
           "check --input",
           directory, val.height, val.width, train.height, train.width);
    }
  }
  std::int64_t classes = 0;
  for (const PixelPart* part : {&train.pixels, &val.pixels}) {
    for (const std::uint8_t label : part->labels) {
      classes = std::max<std::int64_t>(classes, label + 1);
    }
  }
  std::vector<std::string> files = train.files;
  files.insert(files.end(), val.files.begin(), val.files.end());
  SourceInfo info{.image = {.channels = 1, .height = train.height, .width = train.width},
                  .encoded = false,
                  .classes = classes,
                  .class_names = {},
                  .fates = entries_beside(directory, files)};
  for (std::int64_t i = 0; i < classes; ++i) info.class_names.push_back(std::to_string(i));
  return make_pixel_source(std::move(info), std::move(train.pixels), std::move(val.pixels));
}

}  // namespace lockstep
