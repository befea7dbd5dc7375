#include "image_list.hpp"

#include "archive_file.hpp"
#include "class_folder.hpp"
#include "lockstep/comm/broadcast_texts.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "part_names.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* unused_part_reason = "in an evaluation part that is not packed";

/// The entries of a folder of archives.
struct FolderOfArchives {
  std::vector<std::string> archives;  ///< names, sorted
  std::vector<std::string> folders;
  EntryFates fates;  ///< of the others
};

FolderOfArchives archives_in(const fs::path& directory) {
  FolderOfArchives found;
  for (const DirectoryEntry& entry :
       entries_in(directory.string(), "check --input and its permissions")) {
    const std::string path = (directory / entry.name).string();
    const std::string name = lower_case(entry.name);
    if (is_hidden_or_temporary(entry.name)) {
      found.fates.leave_out(hidden_reason, path);
    } else if (entry.is_directory()) {
      found.folders.push_back(entry.name);
    } else if (name.ends_with(".tar")) {
      static_cast<void>(require_input(path));
      found.archives.push_back(entry.name);
    } else if (is_archive_name(entry.name)) {
      found.fates.refuse("a compressed archive (decompress it)", path);
    } else {
      if (entry.error != 0) static_cast<void>(require_input(path));
      found.fates.leave_out("no .tar archive", path);
    }
  }
  return found;
}

void require_archives(const fs::path& directory, const FolderOfArchives& found) {
  if (!found.archives.empty()) return;
  const auto& refused = found.fates.unused();
  fail(ExitStatus::no_input, "{} holds no .tar file (--from webdataset reads them){}",
       directory.string(),
       refused.empty() ? std::string("; check --input")
                       : fmt::format(", but {}; decompress it", refused.front().path));
}

struct Archives {
  std::vector<std::string> train = {};  ///< paths
  std::vector<std::string> val = {};
  EntryFates fates = {};
  std::vector<std::string> notes = {};
};

void refuse_folders(const fs::path& directory, const std::vector<std::string>& folders,
                    EntryFates& fates) {
  for (const std::string& name : folders) {
    fates.refuse("a folder (archives are read from --input and from its parts)",
                 (directory / name).string());
  }
}

/// Parts in folders: train/*.tar and val/*.tar.
Archives find_in_folders(const fs::path& directory, const FolderOfArchives& top,
                         const PartNames& parts) {
  Archives found{.fates = top.fates};
  const auto take = [&](const std::string& part, std::vector<std::string>& paths) {
    const fs::path folder = directory / part;
    const FolderOfArchives in_part = archives_in(folder);
    require_archives(folder, in_part);
    for (const std::string& name : in_part.archives) paths.push_back((folder / name).string());
    found.fates.append(in_part.fates);
    refuse_folders(folder, in_part.folders, found.fates);
  };
  take(*parts.train, found.train);
  if (parts.val) take(*parts.val, found.val);
  for (const std::string& name : parts.unused) {
    found.fates.append(
        walk_folder(
            {.folder = directory / name, .use = FolderUse::leave_out, .reason = unused_part_reason})
            .fates);
  }
  for (const std::string& name : top.archives) {
    found.fates.refuse("an archive beside the parts", (directory / name).string());
  }
  std::vector<std::string> others = top.folders;
  std::erase_if(
      others, [](const std::string& name) { return training_part(name) || evaluation_part(name); });
  refuse_folders(directory, others, found.fates);
  if (const std::string note = parts.note(); !note.empty()) found.notes.push_back(note);
  return found;
}

/// All archives are training data only if no names say otherwise, as trainset-0.tar beside
/// testset-0.tar.
void require_no_like_parts(const fs::path& directory, const std::vector<std::string>& names) {
  const auto named = [&](std::string_view part) {
    return std::ranges::find_if(names, [&](const std::string& name) {
      return lower_case(name).find(part) != std::string::npos;
    });
  };
  const auto train = named("train");
  for (const char* part : {"val", "test"}) {
    const auto other = named(part);
    if (train == names.end() || other == names.end() || train == other) continue;
    fail(ExitStatus::bad_input,
         "{} holds {} and {}, which look like parts (their names have no word train, val or test, "
         "such as train-0.tar); rename them, or put each part into a folder train or val",
         directory.string(), *train, *other);
  }
}

/// Parts by the names of the archives.
Archives find_by_names(const fs::path& directory, const FolderOfArchives& top) {
  require_archives(directory, top);
  Archives found{.fates = top.fates};
  refuse_folders(directory, top.folders, found.fates);
  std::map<std::string, std::vector<std::string>> evaluation;  // by word
  std::vector<std::string> words;
  std::vector<std::string> others;
  for (const std::string& name : top.archives) {
    const std::string word = part_word_in(name);
    const std::string path = (directory / name).string();
    if (word.empty()) {
      others.push_back(path);
    } else if (training_part(word)) {
      found.train.push_back(path);
    } else {
      if (evaluation[word].empty()) words.push_back(word);
      evaluation[word].push_back(path);
    }
  }
  const PartNames parts = find_parts(directory.string(), words);
  if (parts.val) found.val = evaluation[*parts.val];
  for (const std::string& word : parts.unused) {
    for (std::string& path : evaluation[word]) {
      found.fates.leave_out(unused_part_reason, std::move(path));
    }
  }
  if (const std::string note = parts.note(); !note.empty()) found.notes.push_back(note);
  if (found.train.empty() && !parts.val) {
    require_no_like_parts(directory, top.archives);
    found.train.swap(others);
  }
  if (!others.empty() || found.train.empty()) {
    fail(ExitStatus::bad_input,
         "{} has {} archives of train and {} of val by their names, and {} others{} (training data "
         "is needed, and every archive is of one of the two); rename them, or move others away",
         directory.string(), found.train.size(), found.val.size(), others.size(),
         others.empty() ? "" : ", such as " + fs::path(others.front()).filename().string());
  }
  return found;
}

Archives find_archives(const fs::path& directory) {
  const FolderOfArchives top = archives_in(directory);
  const PartNames parts = find_parts(directory.string(), top.folders);
  return parts.train ? find_in_folders(directory, top, parts) : find_by_names(directory, top);
}

std::int64_t largest_label(const ImageList& list) {
  std::int64_t largest = -1;
  for (std::int64_t i = 0; i < list.size(); ++i) {
    largest = std::max<std::int64_t>(largest, list[i].label);
  }
  return largest;
}

/// The same on all ranks: throws on all or none.
void require_labels_below(std::int64_t classes, const ImageList& list,
                          const std::vector<std::string>& containers) {
  for (std::int64_t i = 0; i < list.size(); ++i) {
    if (list[i].label < classes) continue;
    fail(ExitStatus::bad_input,
         "{}/{} has label {} (there are {} classes, by --class-names or the training samples); "
         "check both",
         containers[static_cast<std::size_t>(list[i].container)], list.name(i), list[i].label,
         classes);
  }
}

}  // namespace

ImageListing list_webdataset(const std::string& directory, const std::string& class_names,
                             OnBad on_bad, Communicator& comm) {
  Archives found;
  std::vector<std::string> names;
  collectively(comm, [&] {
    if (comm.rank() != 0) return;
    found = find_archives(directory);
    if (on_bad == OnBad::stop) found.fates.require_all_used();
    if (class_names.empty()) return;
    for (ClassName& name : parse_class_names(read_text(class_names))) {
      const std::string& id = name.id;
      if (id.find_first_not_of("0123456789") == std::string::npos &&
          id != std::to_string(names.size())) {
        fail(ExitStatus::bad_input,
             "{} has class {} in the place of class {} (a WebDataset's classes are the lines in "
             "order, from 0); sort the lines",
             class_names, id, names.size());
      }
      names.push_back(std::move(name.name));
    }
  });
  ImageListing listing{.class_names = broadcast_texts(comm, names),
                       .containers = broadcast_texts(comm, found.train),
                       .archives = true,
                       .fates = broadcast_fates(comm, found.fates),
                       .notes = broadcast_texts(comm, found.notes)};
  const std::size_t train = listing.containers.size();
  const std::vector<std::string> val = broadcast_texts(comm, found.val);
  listing.containers.insert(listing.containers.end(), val.begin(), val.end());
  const std::vector<ListedEntries> listed =
      list_on_all_ranks(comm, listing.containers.size(), [&](std::size_t archive) {
        return list_samples(ArchiveFile(listing.containers[archive]),
                            static_cast<std::int32_t>(archive), on_bad);
      });
  for (std::size_t i = 0; i < listed.size(); ++i) {
    (i < train ? listing.train : listing.val).append(listed[i].images);
    listing.fates.append(listed[i].fates);
  }
  if (on_bad == OnBad::stop) listing.fates.require_all_used();

  listing.classes = static_cast<std::int64_t>(listing.class_names.size());
  if (class_names.empty()) listing.classes = largest_label(listing.train) + 1;
  require_labels_below(listing.classes, listing.train, listing.containers);
  require_labels_below(listing.classes, listing.val, listing.containers);
  return listing;
}

}  // namespace lockstep
