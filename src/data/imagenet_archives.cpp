#include "imagenet_archives.hpp"

#include "archive_file.hpp"
#include "image_name.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* train_archive = "ILSVRC2012_img_train.tar";
constexpr const char* val_archive = "ILSVRC2012_img_val.tar";
constexpr std::string_view archive_ending = ".tar";

void sort_by_name(std::vector<TarMember>& members) {
  std::sort(members.begin(), members.end(),
            [](const TarMember& left, const TarMember& right) { return left.name < right.name; });
}

/// Where the archive of each class lies in the archive of training images, sorted by name.
std::vector<TarMember> class_archives(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    fail(ExitStatus::no_input,
         "{} is not there (--from tar reads {} and {} in --input); check --input", path,
         train_archive, val_archive);
  }
  std::vector<TarMember> classes;
  ArchiveFile(path).for_each_member([&](const TarMember& member) {
    if (!member.name.ends_with(archive_ending) || member.name.find('/') != std::string::npos) {
      fail(ExitStatus::bad_input,
           "{} holds {} (--from tar reads an archive of archives, one CLASS.tar for each class); "
           "unpack it, and use --from folder",
           path, member.name);
    }
    classes.push_back(member);
  });
  sort_by_name(classes);
  const auto twice = std::adjacent_find(classes.begin(), classes.end(), [](auto& one, auto& other) {
    return one.name == other.name;
  });
  if (classes.empty() || twice != classes.end()) {
    fail(ExitStatus::bad_input,
         "{} holds {} (one CLASS.tar for each class is expected); copy it again", path,
         classes.empty() ? "no archive" : twice->name + " twice");
  }
  return classes;
}

/// The images of an archive, or of the archive `inner` in it, sorted by name.
std::vector<TarMember> images_in(const ArchiveFile& file, const TarMember& inner) {
  std::vector<TarMember> images;
  file.for_each_member(inner, [&](const TarMember& member) {
    if (is_image_name(member.name)) images.push_back(member);
  });
  sort_by_name(images);
  if (images.empty()) {
    fail(ExitStatus::bad_input,
         "{}{}{} holds no .jpg, .jpeg or .png file (at least one is needed); copy it again",
         file.path(), inner.name.empty() ? "" : "/", inner.name);
  }
  return images;
}

/// The last part of a path.
std::string_view file_name(const std::string& path) {
  return std::string_view(path).substr(path.find_last_of('/') + 1);
}

ImageList list_validation_images(const std::string& path, const LabelPaths& paths,
                                 const std::vector<std::string>& classes, std::int32_t container) {
  const ArchiveFile file(path);
  const std::vector<TarMember> images =
      images_in(file, {.name = "", .offset = 0, .bytes = file.size()});
  std::vector<std::string> names;
  names.reserve(images.size());
  for (const TarMember& image : images) names.emplace_back(file_name(image.name));
  const std::vector<std::int32_t> labels = read_labels(paths, names, classes);
  ImageList list;
  for (std::size_t i = 0; i < images.size(); ++i) {
    list.add({.bytes = images[i].bytes,
              .offset = images[i].offset,
              .container = container,
              .label = labels[i]},
             images[i].name);
  }
  return list;
}

/// Whether there are validation images, on rank 0. Error if they have no labels, or labels no
/// images.
bool has_validation_images(const std::string& path, bool has_labels) {
  std::error_code ignored;
  const bool is_there = fs::exists(path, ignored);
  if (is_there && !has_labels) {
    fail(ExitStatus::usage,
         "--val-labels is missing ({} holds images without classes); give LOC_val_solution.csv, or "
         "another file with their classes",
         path);
  }
  if (!is_there && has_labels) {
    fail(ExitStatus::no_input, "--val-labels, but {} is not there (it labels its images); drop it",
         path);
  }
  return is_there;
}

}  // namespace

ImageListing list_imagenet_archives(const std::string& directory,
                                    const std::optional<LabelPaths>& labels, Communicator& comm) {
  const std::string train = (fs::path(directory) / train_archive).string();
  const std::string val = (fs::path(directory) / val_archive).string();
  std::vector<TarMember> found;
  std::int32_t has_val = 0;
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    found = class_archives(train);
    has_val = has_validation_images(val, labels.has_value()) ? 1 : 0;
  });
  ImageList archives;
  for (const TarMember& member : found) {
    archives.add({.bytes = member.bytes, .offset = member.offset}, member.name);
  }
  archives = list_on_all_ranks(comm, 1, [&](std::size_t) { return archives; });
  comm.broadcast(std::span<std::int32_t>(&has_val, 1));

  ImageListing listing{.classes = archives.size(), .containers = {train, val}, .archives = true};
  for (std::int64_t i = 0; i < archives.size(); ++i) {
    std::string_view name = archives.name(i);
    name.remove_suffix(archive_ending.size());
    listing.class_names.emplace_back(name);
  }
  listing.train =
      list_on_all_ranks(comm, static_cast<std::size_t>(archives.size()), [&](std::size_t item) {
        const auto label = static_cast<std::int64_t>(item);
        const TarMember inner{.name = std::string(archives.name(label)),
                              .offset = archives[label].offset,
                              .bytes = archives[label].bytes};
        ImageList list;
        for (const TarMember& image : images_in(ArchiveFile(train), inner)) {
          list.add({.bytes = image.bytes,
                    .offset = image.offset,
                    .label = static_cast<std::int32_t>(label)},
                   inner.name + "/" + image.name);
        }
        return list;
      });
  if (has_val != 0) {
    listing.val = list_on_all_ranks(comm, 1, [&](std::size_t) {
      return list_validation_images(val, *labels, listing.class_names, 1);
    });
  }
  return listing;
}

}  // namespace lockstep
