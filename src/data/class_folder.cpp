#include "class_folder.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "part_names.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct ImageFile {
  std::string name;  ///< path in the folder
  std::uint64_t bytes;
};

/// A folder that is being walked: its device and number.
using FolderIdentity = std::pair<dev_t, ino_t>;

class Walker final {
 public:
  explicit Walker(const FolderWalk& walk) : walk_(walk) {}

  ListedEntries run() {
    walk(walk_.folder, "");
    std::sort(images_.begin(), images_.end(),
              [](const ImageFile& left, const ImageFile& right) { return left.name < right.name; });
    for (const ImageFile& image : images_) {
      entries_.images.add({.bytes = image.bytes, .container = walk_.container}, image.name);
    }
    return std::move(entries_);
  }

 private:
  void walk(const fs::path& folder, const std::string& prefix) {
    enter(folder);
    const std::vector<DirectoryEntry> entries =
        entries_in(folder.string(), "check --input, which all nodes must see, and its permissions");
    if (prefix.empty() && walk_.use == FolderUse::read) refuse_parts(folder, entries);
    for (const DirectoryEntry& entry : entries) {
      const fs::path path = folder / entry.name;
      if (is_hidden_or_temporary(entry.name)) {
        entries_.fates.leave_out(hidden_reason, path.string());
      } else if (entry.is_directory()) {
        walk(path, prefix + entry.name + "/");
      } else {
        take(entry, path, prefix);
      }
    }
    above_.pop_back();
  }

  /// A link to a folder above itself would be followed for ever.
  void enter(const fs::path& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) == 0 &&
        std::find(above_.begin(), above_.end(), FolderIdentity(status.st_dev, status.st_ino)) !=
            above_.end()) {
      fail(ExitStatus::bad_input,
           "{} is a link to a folder that holds it (its images would be read without end); link to "
           "the folders of the images instead",
           folder.string());
    }
    above_.emplace_back(status.st_dev, status.st_ino);
  }

  static void refuse_parts(const fs::path& folder, const std::vector<DirectoryEntry>& entries) {
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : entries) {
      if (entry.is_directory()) names.push_back(entry.name);
    }
    const auto [train, val] = like_parts(names);
    if (train.empty() || val.empty()) return;
    fail(ExitStatus::bad_input,
         "class folder {} holds {} and {} (the parts are above the classes: {}/CLASS and "
         "{}/CLASS); make folders or links in this order",
         folder.string(), train, val, train, val);
  }

  void take(const DirectoryEntry& entry, const fs::path& path, const std::string& prefix) {
    EntryFates& fates = entries_.fates;
    // Names why it cannot be examined, unless it can be meanwhile.
    if (entry.error != 0) static_cast<void>(require_input(path.string()));
    if (!entry.is_file()) {
      const std::string kind =
          entry.error != 0 ? "a changing file" : special_kind(entry.status.st_mode);
      has_image_extension(entry.name)
          ? fates.refuse(kind + " that is named as an image", path.string())
          : fates.leave_out(kind, path.string());
      return;
    }
    if (walk_.use == FolderUse::leave_out) {
      fates.leave_out(walk_.reason, path.string());
      return;
    }
    if (is_archive_name(entry.name)) {
      fates.refuse(archive_reason, path.string());
      return;
    }
    const JudgedFile judged = judge_file(path);
    if (judged.use == ImageUse::none) {
      fates.leave_out(judged.reason, path.string());
    } else if (walk_.use == FolderUse::refuse) {
      fates.refuse(walk_.reason, path.string());
    } else if (judged.use == ImageUse::refused && walk_.refuses_formats) {
      fates.refuse(judged.reason, path.string());
    } else {
      images_.push_back(
          {.name = prefix + entry.name, .bytes = static_cast<std::uint64_t>(entry.status.st_size)});
    }
  }

  const FolderWalk& walk_;
  std::vector<FolderIdentity> above_;
  std::vector<ImageFile> images_;
  ListedEntries entries_;
};

}  // namespace

JudgedFile judge_file(const fs::path& path) {
  std::array<std::byte, first_image_bytes> buffer{};
  return judge_image(path.filename().string(), [&]() -> std::span<const std::byte> {
    const Descriptor file = open_input(path.string());
    return std::span(buffer).first(read_input(file, path.string(), 0, buffer, "check the disk"));
  });
}

ListedEntries walk_folder(const FolderWalk& walk) {
  return Walker(walk).run();
}

}  // namespace lockstep
