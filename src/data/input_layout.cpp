#include "input_layout.hpp"

#include "class_folder.hpp"
#include "image_kind.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "part_names.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The entries of a folder that holds folders.
struct FolderEntries {
  std::vector<std::string> folders;
  std::vector<std::string> images;  ///< files that are or seem to be images
  EntryFates fates;                 ///< of the others
};

FolderEntries entries_of(const fs::path& directory) {
  FolderEntries found;
  for (const DirectoryEntry& entry : entries_in(
           directory.string(), "check --input, which all nodes must see, and its permissions")) {
    const fs::path path = directory / entry.name;
    if (is_hidden_or_temporary(entry.name)) {
      found.fates.leave_out(hidden_reason, path.string());
    } else if (entry.is_directory()) {
      found.folders.push_back(entry.name);
    } else if (entry.error != 0) {
      static_cast<void>(require_input(path.string()));
    } else if (!entry.is_file()) {
      has_image_extension(entry.name)
          ? found.images.push_back(entry.name)
          : found.fates.leave_out(special_kind(entry.status.st_mode), path.string());
    } else if (is_archive_name(entry.name)) {
      found.fates.refuse(archive_reason, path.string());
    } else {
      const JudgedFile judged = judge_file(path);
      judged.use == ImageUse::none ? found.fates.leave_out(judged.reason, path.string())
                                   : found.images.push_back(entry.name);
    }
  }
  return found;
}

bool is_part_name(const std::string& name) {
  return training_part(name) || evaluation_part(name);
}

/// Images outside class folders must not be skipped in silence.
void require_no_loose_images(const fs::path& directory, const FolderEntries& entries,
                             const std::string& suggestion) {
  if (entries.images.empty()) return;
  fail(ExitStatus::bad_input,
       "{} holds {} image{} outside of class folders, such as {} (--from folder takes an image's "
       "class from its folder); {}",
       directory.string(), entries.images.size(), entries.images.size() == 1 ? "" : "s",
       entries.images.front(), suggestion);
}

/// Class folders that hold no image themselves, but folders, may be something else.
void require_classes(const fs::path& base, const std::vector<std::string>& names) {
  const auto holds_only_folders = [&](const std::string& name) {
    const FolderEntries entries = entries_of(base / name);
    return entries.images.empty() && entries.folders.size() > (names.size() == 1 ? 1U : 0U);
  };
  const auto [train, val] = like_parts(names);
  const bool all_like_parts = std::ranges::none_of(
      names, [](const std::string& name) { return part_word_in(name).empty(); });
  if (!train.empty() && !val.empty() &&
      (all_like_parts || (holds_only_folders(train) && holds_only_folders(val)))) {
    fail(ExitStatus::bad_input,
         "{} holds {} and {}, which look like parts, not like classes (parts are called train and "
         "val or test); rename or link them so, or give one of them as --input",
         base.string(), train, val);
  }
  if (names.size() == 1 && holds_only_folders(names.front())) {
    fail(ExitStatus::bad_input,
         "{} holds one folder, {}, which holds folders and no images (its folders look like the "
         "classes); give {} as --input",
         base.string(), names.front(), (base / names.front()).string());
  }
}

/// Class folders directly in `base`, some of which may have the names of parts.
InputLayout classes_without_parts(const fs::path& base, const FolderEntries& entries) {
  InputLayout layout{.train = base.string(), .classes = entries.folders, .fates = entries.fates};
  require_classes(base, entries.folders);
  const bool only_parts = std::ranges::all_of(entries.folders, is_part_name);
  for (const std::string& name : entries.folders) {
    if (!is_part_name(name)) continue;
    const FolderEntries in_part = entries_of(base / name);
    if (only_parts || !in_part.folders.empty() || in_part.images.empty()) {
      fail(ExitStatus::bad_input,
           "{} has the name of a part, and {} (parts hold class folders: {}/train/CLASS and "
           "{}/{}/CLASS; a class of this name holds images itself); put the classes into {}/train, "
           "or "
           "give {} as --input",
           (base / name).string(),
           in_part.images.empty() && in_part.folders.empty()
               ? "holds no images"
               : "there is no training part beside it",
           base.string(), base.string(), training_part(name) ? "val" : name, base.string(),
           (base / name).string());
    }
    layout.notes.push_back(fmt::format("{} is taken for a class, since it holds images itself",
                                       (base / name).string()));
  }
  return layout;
}

void find_val(const fs::path& val, bool has_labels, InputLayout& layout) {
  const FolderEntries in_val = entries_of(val);
  layout.val = val.string();
  if (has_labels) {
    const auto sorted = std::ranges::find_if(in_val.folders, [&](const std::string& name) {
      return std::ranges::binary_search(layout.classes, name);
    });
    if (sorted != in_val.folders.end()) {
      fail(ExitStatus::bad_input,
           "--val-labels, but {} holds the class folder {} (it labels images without class "
           "folders); "
           "drop --val-labels, or check --input",
           val.string(), *sorted);
    }
    return;  // its entries are listed with their labels
  }
  require_no_loose_images(val, in_val,
                          fmt::format("give their classes by --val-labels (for ImageNet, "
                                      "LOC_val_solution.csv), or move each into the folder of its "
                                      "class; {} as --input packs the training part alone",
                                      layout.train));
  if (in_val.folders.empty()) {
    fail(ExitStatus::bad_input,
         "{} holds no class folders (an evaluation part is read from {}/CLASS); add them, or give "
         "{} "
         "as --input, which packs the training part alone",
         val.string(), val.string(), layout.train);
  }
  layout.val_classes = in_val.folders;
  layout.fates.append(in_val.fates);
}

}  // namespace

InputLayout find_layout(const std::string& directory, bool has_labels) {
  const fs::path base(directory);
  const FolderEntries entries = entries_of(base);
  const PartNames parts = find_parts(directory, entries.folders);
  const bool only_parts = std::ranges::all_of(entries.folders, is_part_name);
  std::optional<FolderEntries> in_train;
  if (parts.train) {
    in_train = entries_of(base / *parts.train);
    if (in_train->folders.empty() && !only_parts) in_train.reset();  // a class
  }
  if (has_labels && (!in_train || !parts.val)) {
    fail(ExitStatus::no_input,
         "--val-labels, but {} has no folders train and val (it labels the images in val); check "
         "--input",
         directory);
  }
  if (!in_train) {
    require_no_loose_images(base, entries, "move each into the folder of its class");
    if (entries.folders.empty()) {
      fail(ExitStatus::no_input,
           "{} holds no folders (--from folder reads INPUT/CLASS/*.png or INPUT/train/CLASS/*.png, "
           "PNG or JPEG); check --input",
           directory);
    }
    return classes_without_parts(base, entries);
  }

  const fs::path train = base / *parts.train;
  InputLayout layout{.train = train.string(), .classes = in_train->folders, .fates = entries.fates};
  for (const std::string& name : entries.images) {
    layout.fates.refuse("an image beside the parts (it is in no class)", (base / name).string());
  }
  require_no_loose_images(train, *in_train, "move each into the folder of its class");
  if (layout.classes.empty()) {
    fail(ExitStatus::no_input,
         "{} holds no folders (the training part is read from {}/CLASS); check --input",
         layout.train, layout.train);
  }
  require_classes(train, layout.classes);
  layout.fates.append(in_train->fates);
  if (parts.val) find_val(base / *parts.val, has_labels, layout);
  for (const std::string& name : parts.unused) {
    layout.unused_parts.push_back((base / name).string());
  }
  for (const std::string& name : entries.folders) {
    if (!is_part_name(name)) layout.others.push_back((base / name).string());
  }
  if (const std::string note = parts.note(); !note.empty()) layout.notes.push_back(note);
  return layout;
}

}  // namespace lockstep
