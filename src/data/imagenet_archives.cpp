#include "image_list.hpp"

#include "archive_file.hpp"
#include "class_folder.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "pack_file.hpp"
#include "part_names.hpp"

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

/// The last part of a path.
std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

/// Where the archive of each class lies in the archive of training images, sorted by name.
std::vector<TarMember> class_archives(const std::string& path, EntryFates& fates) {
  if (!is_there(path)) {
    fail(ExitStatus::no_input,
         "{} is not there (--from tar reads {} and {} in --input); check --input", path,
         train_archive, val_archive);
  }
  std::vector<TarMember> classes;
  ArchiveFile(path).for_each_member([&](const TarMember& member) {
    if (is_hidden_path(member.name)) {
      fates.leave_out(hidden_reason, path + "/" + member.name);
      return;
    }
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

struct ArchivedImages {
  std::vector<TarMember> images;  ///< sorted by name
  EntryFates fates;
};

/// What is in an archive, or in the archive `inner` in it.
ArchivedImages images_in(const ArchiveFile& file, const TarMember& inner, OnBad on_bad) {
  ArchivedImages found;
  const std::string path = inner.name.empty() ? file.path() : file.path() + "/" + inner.name;
  file.for_each_member(inner, [&](const TarMember& member) {
    const std::string name = path + "/" + member.name;
    if (is_hidden_path(member.name)) {
      found.fates.leave_out(hidden_reason, name);
      return;
    }
    if (is_archive_name(member.name)) {
      found.fates.refuse(archive_reason, name);
      return;
    }
    const JudgedFile judged = file.judge(member);
    const bool is_special = !std::string_view(member.special).empty();
    if (judged.use == ImageUse::none) {
      found.fates.leave_out(judged.reason, name);
    } else if (judged.use == ImageUse::refused && (on_bad == OnBad::stop || is_special)) {
      found.fates.refuse(judged.reason, name);
    } else {
      found.images.push_back(member);
    }
  });
  sort_by_name(found.images);
  const auto twice =
      std::adjacent_find(found.images.begin(), found.images.end(),
                         [](auto& one, auto& other) { return one.name == other.name; });
  if (twice != found.images.end()) {
    fail(ExitStatus::bad_input,
         "{} holds {} twice (an archive is packed as it is, and one of the two replaces the other "
         "when it is unpacked); make the archive again",
         path, twice->name);
  }
  if (found.images.empty() && found.fates.unused().empty()) {
    fail(ExitStatus::bad_input,
         "{} holds no JPEG or PNG file (at least one is needed); copy it again", path);
  }
  return found;
}

ListedEntries list_validation_images(const std::string& path, const LabelPaths& paths,
                                     const std::vector<std::string>& classes, OnBad on_bad) {
  const ArchiveFile file(path);
  ArchivedImages found = images_in(file, {.name = "", .offset = 0, .bytes = file.size()}, on_bad);
  ListedEntries listed{.fates = std::move(found.fates)};
  if (on_bad == OnBad::stop) listed.fates.require_all_used();
  std::vector<std::string> names;
  for (const TarMember& image : found.images) names.emplace_back(file_name(image.name));
  const std::vector<std::int32_t> labels = read_labels(paths, names, classes);
  for (std::size_t i = 0; i < found.images.size(); ++i) {
    const TarMember& image = found.images[i];
    listed.images.add(
        {.bytes = image.bytes, .offset = image.offset, .container = 1, .label = labels[i]},
        image.name);
  }
  return listed;
}

struct Beside {
  EntryFates fates;
  bool has_val = false;
};

/// What is in the directory besides the training archive. ImageNet's other files have no labels, or
/// no images.
Beside look_beside(const std::string& directory) {
  Beside found;
  std::string like_val;
  for (const DirectoryEntry& entry : entries_in(directory)) {
    const std::string path = (fs::path(directory) / entry.name).string();
    if (entry.name == train_archive) continue;
    if (entry.name == val_archive) {
      static_cast<void>(require_input(path));
      found.has_val = true;
    } else if (is_hidden_or_temporary(entry.name)) {
      found.fates.leave_out(hidden_reason, path);
    } else {
      found.fates.leave_out("not one of the archives that are read", path);
      const std::string name = lower_case(entry.name);
      if (name.ends_with(archive_ending) && part_word_in(name).starts_with("val")) like_val = path;
    }
  }
  if (!found.has_val && !like_val.empty()) {
    fail(
        ExitStatus::bad_input,
        "{} looks like the validation images, which are read from {}; rename it, or move it out of "
        "--input",
        like_val, val_archive);
  }
  return found;
}

/// Error if there are validation images without labels, or labels without images.
void require_labels_of(const std::string& path, bool is_there, bool has_labels) {
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
}

}  // namespace

ImageListing list_imagenet_archives(const std::string& directory,
                                    const std::optional<LabelPaths>& labels, OnBad on_bad,
                                    Communicator& comm) {
  const std::string train = (fs::path(directory) / train_archive).string();
  const std::string val = (fs::path(directory) / val_archive).string();
  ListedEntries found;  // rank 0's: the archives of the classes
  std::int32_t has_val = 0;
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    const Beside beside = look_beside(directory);
    require_labels_of(val, beside.has_val, labels.has_value());
    found.fates = beside.fates;
    has_val = beside.has_val ? 1 : 0;
    for (const TarMember& member : class_archives(train, found.fates)) {
      found.images.add({.bytes = member.bytes, .offset = member.offset}, member.name);
    }
  });
  const ListedEntries top = list_on_all_ranks(comm, 1, [&](std::size_t) { return found; }).front();
  const ImageList& archives = top.images;
  comm.broadcast(std::span<std::int32_t>(&has_val, 1));

  ImageListing listing{
      .classes = archives.size(), .containers = {train, val}, .archives = true, .fates = top.fates};
  for (std::int64_t i = 0; i < archives.size(); ++i) {
    std::string_view name = archives.name(i);
    name.remove_suffix(archive_ending.size());
    listing.class_names.emplace_back(name);
  }
  const auto list_class = [&](std::size_t item) {
    const auto label = static_cast<std::int64_t>(item);
    const TarMember inner{.name = std::string(archives.name(label)),
                          .offset = archives[label].offset,
                          .bytes = archives[label].bytes};
    ArchivedImages of_class = images_in(ArchiveFile(train), inner, on_bad);
    ListedEntries entries{.fates = std::move(of_class.fates)};
    for (const TarMember& image : of_class.images) {
      entries.images.add(
          {.bytes = image.bytes, .offset = image.offset, .label = static_cast<std::int32_t>(label)},
          inner.name + "/" + image.name);
    }
    return entries;
  };
  for (const ListedEntries& of_class :
       list_on_all_ranks(comm, static_cast<std::size_t>(archives.size()), list_class)) {
    listing.train.append(of_class.images);
    listing.fates.append(of_class.fates);
  }
  if (on_bad == OnBad::stop) listing.fates.require_all_used();
  if (has_val != 0) {
    ListedEntries images =
        list_on_all_ranks(comm, 1, [&](std::size_t) {
          return list_validation_images(val, *labels, listing.class_names, on_bad);
        }).front();
    listing.val = std::move(images.images);
    listing.fates.append(images.fates);
  }
  return listing;
}

}  // namespace lockstep
