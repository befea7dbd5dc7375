#include "folder_listing.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_image_name(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".jpg" || extension == ".jpeg" || extension == ".png";
}

fs::directory_iterator open_directory(const fs::path& path) {
  std::error_code error;
  fs::directory_iterator entries(path, error);
  if (error) {
    fail(ExitStatus::no_input, "cannot list {} ({}); check --input and its permissions",
         path.string(), error.message());
  }
  return entries;
}

/// The sorted names of a part's class folders. Fails on images outside class folders, instead of
/// silently skipping them.
std::vector<std::string> class_folders(const fs::path& directory) {
  std::vector<std::string> names;
  std::vector<std::string> loose;
  for (const fs::directory_entry& entry : open_directory(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) continue;
    std::error_code ignored;
    if (entry.is_directory(ignored)) {
      names.push_back(name);
    } else if (is_image_name(entry.path())) {
      loose.push_back(name);
    }
  }
  if (!loose.empty()) {
    fail(
        ExitStatus::bad_input,
        "{} holds {} image{} outside of class folders, such as {} (--from folder takes an image's "
        "class from its folder; ImageNet's validation images come without folders); move each into "
        "the folder of its class, as docs/file-formats.md shows, or remove {}",
        directory.string(), loose.size(), loose.size() == 1 ? "" : "s",
        *std::min_element(loose.begin(), loose.end()), loose.size() == 1 ? "it" : "them");
  }
  std::sort(names.begin(), names.end());
  return names;
}

FolderPart list_part(const fs::path& directory, const std::vector<std::string>& classes) {
  FolderPart part{.directory = directory.string(), .images = {}};
  for (const std::string& folder : class_folders(directory)) {
    const auto found = std::lower_bound(classes.begin(), classes.end(), folder);
    if (found == classes.end() || *found != folder) {
      fail(ExitStatus::bad_input,
           "{} is a class that the training part does not have ({} classes, {} to {}); remove it, "
           "or "
           "add its training images",
           (directory / folder).string(), classes.size(), classes.front(), classes.back());
    }
    const std::size_t before = part.images.size();
    for (const fs::directory_entry& entry : open_directory(directory / folder)) {
      std::error_code error;
      const std::string name = entry.path().filename().string();
      if (name.starts_with('.') || !is_image_name(entry.path()) || !entry.is_regular_file(error)) {
        continue;
      }
      const std::uintmax_t bytes = entry.file_size(error);
      if (error) {
        fail(ExitStatus::no_input, "cannot read {} ({}); check its permissions",
             entry.path().string(), error.message());
      }
      part.images.push_back({.name = name, .label = found - classes.begin(), .bytes = bytes});
    }
    if (part.images.size() == before) {
      fail(ExitStatus::bad_input,
           "{} holds no .png, .jpg or .jpeg file (a class needs at least one image); remove the "
           "folder, or check --input",
           (directory / folder).string());
    }
    std::sort(
        part.images.begin() + static_cast<std::ptrdiff_t>(before), part.images.end(),
        [](const ListedImage& left, const ListedImage& right) { return left.name < right.name; });
  }
  return part;
}

}  // namespace

FolderListing list_folder(const std::string& directory) {
  std::error_code ignored;
  const fs::path base(directory);
  const bool has_parts = fs::is_directory(base / "train", ignored);
  const fs::path train = has_parts ? base / "train" : base;
  FolderListing listing;
  listing.classes = class_folders(train);
  if (listing.classes.empty()) {
    fail(ExitStatus::no_input,
         "{} holds no folders (--from folder reads INPUT/CLASS/*.png or INPUT/train/CLASS/*.png, "
         "PNG or JPEG); check --input",
         train.string());
  }
  listing.train = list_part(train, listing.classes);
  if (has_parts && fs::is_directory(base / "val", ignored)) {
    listing.val = list_part(base / "val", listing.classes);
    if (listing.val.images.empty()) {
      fail(ExitStatus::bad_input,
           "{} holds no class folders (the test part is read from val/CLASS/*.png, PNG or JPEG); "
           "add "
           "them, or remove val",
           (base / "val").string());
    }
  }
  return listing;
}

}  // namespace lockstep
