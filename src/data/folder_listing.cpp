#include "folder_listing.hpp"

#include "image_name.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

fs::directory_iterator open_directory(const fs::path& path) {
  std::error_code error;
  fs::directory_iterator entries(path, error);
  if (error) {
    fail(ExitStatus::no_input,
         "cannot list {} ({}); check --input, which all nodes must see, and its permissions",
         path.string(), error.message());
  }
  return entries;
}

/// The entries of a part's directory, sorted.
struct PartEntries {
  std::vector<std::string> folders;
  std::vector<std::string> images;
};

PartEntries entries_of(const fs::path& directory) {
  PartEntries entries;
  for (const fs::directory_entry& entry : open_directory(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.')) continue;
    std::error_code ignored;
    if (entry.is_directory(ignored)) {
      entries.folders.push_back(name);
    } else if (is_image_name(name)) {
      entries.images.push_back(name);
    }
  }
  std::sort(entries.folders.begin(), entries.folders.end());
  std::sort(entries.images.begin(), entries.images.end());
  return entries;
}

/// Images outside class folders must not be skipped in silence.
void require_no_loose_images(const fs::path& directory, const PartEntries& entries,
                             const std::string& suggestion) {
  if (entries.images.empty()) return;
  fail(ExitStatus::bad_input,
       "{} holds {} image{} outside of class folders, such as {} (--from folder takes an image's "
       "class from its folder); {}",
       directory.string(), entries.images.size(), entries.images.size() == 1 ? "" : "s",
       entries.images.front(), suggestion);
}

struct ImageFile {
  std::string name;
  std::uint64_t bytes;
};

/// The image files directly in a directory, sorted by name.
std::vector<ImageFile> image_files(const fs::path& directory) {
  std::vector<ImageFile> files;
  for (const fs::directory_entry& entry : open_directory(directory)) {
    std::error_code error;
    std::string name = entry.path().filename().string();
    if (name.starts_with('.') || !is_image_name(name) || !entry.is_regular_file(error)) {
      continue;
    }
    const std::uintmax_t bytes = entry.file_size(error);
    if (error) {
      fail(ExitStatus::no_input, "cannot read {} ({}); check its permissions",
           entry.path().string(), error.message());
    }
    files.push_back({.name = std::move(name), .bytes = bytes});
  }
  std::sort(files.begin(), files.end(),
            [](const ImageFile& left, const ImageFile& right) { return left.name < right.name; });
  return files;
}

/// The images of one class folder, sorted by name.
ImageList list_class(const fs::path& directory, ListedImage image) {
  const std::vector<ImageFile> files = image_files(directory);
  if (files.empty()) {
    fail(ExitStatus::bad_input,
         "{} holds no .png, .jpg or .jpeg file (a class needs at least one image); remove the "
         "folder, or check --input",
         directory.string());
  }
  ImageList list;
  for (const ImageFile& file : files) {
    image.bytes = file.bytes;
    list.add(image, file.name);
  }
  return list;
}

/// The images directly in `directory`, sorted by name, with labels from files.
ImageList list_labelled(const fs::path& directory, const LabelPaths& paths,
                        const std::vector<std::string>& classes, std::int32_t container) {
  const std::vector<ImageFile> files = image_files(directory);
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const ImageFile& file : files) names.push_back(file.name);
  const std::vector<std::int32_t> labels = read_labels(paths, names, classes);
  ImageList list;
  for (std::size_t i = 0; i < files.size(); ++i) {
    list.add({.bytes = files[i].bytes, .container = container, .label = labels[i]}, names[i]);
  }
  return list;
}

/// Index of a test part's class folder among the training part's.
std::int32_t label_of(const fs::path& folder, const std::vector<std::string>& classes) {
  const auto found = std::lower_bound(classes.begin(), classes.end(), folder.filename().string());
  if (found == classes.end() || *found != folder.filename().string()) {
    fail(ExitStatus::bad_input,
         "{} is a class that the training part does not have ({} classes, {} to {}); remove it, or "
         "add its training images",
         folder.string(), classes.size(), classes.front(), classes.back());
  }
  return static_cast<std::int32_t>(found - classes.begin());
}

/// The images of the class folders `names`, which become containers of `listing`.
ImageList list_part(const fs::path& directory, const std::vector<std::string>& names,
                    ImageListing& listing, Communicator& comm) {
  const auto first = static_cast<std::int32_t>(listing.containers.size());
  for (const std::string& name : names) listing.containers.push_back((directory / name).string());
  return list_on_all_ranks(comm, names.size(), [&](std::size_t item) {
    const fs::path folder = directory / names[item];
    return list_class(folder, {.container = first + static_cast<std::int32_t>(item),
                               .label = label_of(folder, listing.class_names)});
  });
}

/// What rank 0 finds in the input's folders.
struct FoundFolders {
  bool has_parts = false;  ///< train/, and maybe val/
  std::vector<std::string> train = {};
  std::vector<std::string> val = {};
};

FoundFolders find_folders(const fs::path& base, bool has_labels) {
  std::error_code ignored;
  FoundFolders found{.has_parts = fs::is_directory(base / "train", ignored)};
  const fs::path train = found.has_parts ? base / "train" : base;
  const fs::path val = base / "val";
  const PartEntries in_train = entries_of(train);
  require_no_loose_images(train, in_train, "move each into the folder of its class, or remove it");
  found.train = in_train.folders;
  if (found.train.empty()) {
    fail(ExitStatus::no_input,
         "{} holds no folders (--from folder reads INPUT/CLASS/*.png or INPUT/train/CLASS/*.png, "
         "PNG or JPEG); check --input",
         train.string());
  }
  const bool has_val = found.has_parts && fs::is_directory(val, ignored);
  if (has_labels && !has_val) {
    fail(ExitStatus::no_input,
         "--val-labels, but {} has no folders train and val (it labels the images in val); check "
         "--input",
         base.string());
  }
  if (!has_val) return found;
  const PartEntries in_val = entries_of(val);
  if (has_labels) {
    if (!in_val.folders.empty() || in_val.images.empty()) {
      fail(ExitStatus::bad_input,
           "--val-labels, but {} holds {} folders, and {} images outside of them (it labels images "
           "without class folders); drop --val-labels, or check --input",
           val.string(), in_val.folders.size(), in_val.images.size());
    }
    return found;
  }
  require_no_loose_images(val, in_val,
                          "give their classes by --val-labels (for ImageNet, "
                          "LOC_val_solution.csv), or move each into the folder of its class");
  found.val = in_val.folders;
  if (found.val.empty()) {
    fail(ExitStatus::bad_input,
         "{} holds no class folders (the test part is read from val/CLASS/*.png, PNG or JPEG); add "
         "them, or remove val",
         val.string());
  }
  return found;
}

}  // namespace

ImageListing list_folder(const std::string& directory, const std::optional<LabelPaths>& labels,
                         Communicator& comm) {
  const fs::path base(directory);
  FoundFolders found;
  collectively(comm, [&] {
    if (comm.rank() == 0) found = find_folders(base, labels.has_value());
  });
  const std::vector<std::string> train = broadcast_texts(comm, found.train);
  const std::vector<std::string> val = broadcast_texts(comm, found.val);
  const bool has_parts = comm.all_reduce_value<std::int32_t>(found.has_parts ? 1 : 0) != 0;

  ImageListing listing{.classes = static_cast<std::int64_t>(train.size()), .class_names = train};
  listing.train = list_part(has_parts ? base / "train" : base, train, listing, comm);
  if (!labels) {
    listing.val = list_part(base / "val", val, listing, comm);
    return listing;
  }
  const auto container = static_cast<std::int32_t>(listing.containers.size());
  listing.containers.push_back((base / "val").string());
  listing.val = list_on_all_ranks(comm, 1, [&](std::size_t) {
    return list_labelled(base / "val", *labels, listing.class_names, container);
  });
  return listing;
}

}  // namespace lockstep
