#include "unfinished_packing.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/text_file.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/shard_file.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "shard_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>

namespace lockstep {
namespace {

constexpr std::string_view record_ending = ".json";
constexpr const char* settings_name = "settings.txt";
constexpr const char* publishing_name = "publishing";
constexpr const char* other_output = "choose another --output";

/// The size of a file that may be a packing's: of a link, or a file with a second hard link, nobody
/// knows whose contents it has.
std::optional<std::uint64_t> size_of_own(const FilePath& path) {
  struct stat status {};
  if (!path.get_status(status) || !S_ISREG(status.st_mode) || status.st_nlink > 1) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(status.st_size);
}

/// Nothing if the directory is not there.
std::vector<std::string> visible_names(const FilePath& directory) {
  return directory.exists() ? names_in(directory) : std::vector<std::string>();
}

/// Shards, and the lists beside them.
std::vector<FilePath> files_to_replace(const OpenDirectory& directory) {
  std::vector<FilePath> files;
  for (const std::string& file : names_in(directory / ".")) {
    const auto name = parse_shard_name(file);
    if (name && (name->split == "train" || name->split == "val")) {
      files.push_back(directory / file);
    }
  }
  for (const char* name : {skipped_list_name, packing_record_name}) {
    if ((directory / name).exists()) files.push_back(directory / name);
  }
  return files;
}

void remove_old(const OpenDirectory& directory) {
  for (const FilePath& path : files_to_replace(directory)) {
    if (!path.remove()) {
      fail(ExitStatus::cannot_write, "cannot replace {} ({}); check the permissions of --output",
           path.text(), std::strerror(errno));
    }
  }
}

/// Its files, and then itself. False with errno.
bool remove_with_files(const FilePath& directory) {
  if (!directory.exists()) return errno == ENOENT;
  for (const DirectoryEntry& entry : entries_in(directory)) (directory / entry.name).remove();
  const FilePath::Place at = directory.place();
  return at.directory && ::unlinkat(at.directory.get(), at.name.c_str(), AT_REMOVEDIR) == 0;
}

bool holds_records(const FilePath& directory) {
  return std::ranges::any_of(visible_names(directory),
                             [](const std::string& name) { return name.ends_with(record_ending); });
}

/// The directory is removed at the end, so it must hold nothing that is not a packing's.
void require_own_files(const FilePath& directory) {
  require_directory_if_present(directory, other_output);
  for (const std::string& name : visible_names(directory)) {
    std::string_view shard = name;
    if (shard.ends_with(record_ending)) shard.remove_suffix(record_ending.size());
    if (name == settings_name || name == publishing_name || name == skipped_list_name ||
        parse_shard_name(shard)) {
      continue;
    }
    fail(ExitStatus::usage,
         "{}/{} is not a packing's (the directory is needed for the packing, and removed at its "
         "end); {}",
         directory.text(), name, other_output);
  }
}

std::string to_text(const PackSettings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text += fmt::format("{}: {}\n", name, value);
  return text;
}

/// "NAME: VALUE" in `old`, or what to say of it, of the first setting that differs. Repeats no text
/// that no packing wrote.
std::string first_difference(const std::string& old, const PackSettings& settings) {
  std::istringstream lines(old);
  std::string line;
  for (const auto& [name, value] : settings) {
    std::getline(lines, line);
    if (line == fmt::format("{}: {}", name, value)) continue;
    const bool is_short = line.size() < 1000;
    return is_short && line.starts_with(name + ": ") ? line : "another " + name;
  }
  return "more settings";
}

}  // namespace

UnfinishedPacking::UnfinishedPacking(const std::string& output)
    : output_(output),
      directory_(output_ / unfinished_packing),
      removed_(output_ / fmt::format(".{}.tmp-pack", unfinished_packing)),
      settings_(directory_ / settings_name),
      publishing_(directory_ / publishing_name) {}

FilePath UnfinishedPacking::record(const std::string& name) const {
  return file(name + std::string(record_ending));
}

std::string UnfinishedPacking::stored_settings() const {
  if (size_of_own(settings_)) return read_text_file(settings_);
  if (!settings_.exists()) return {};
  fail(ExitStatus::usage, "{} is not a packing's (it is a link, or has several names); {}",
       settings_.text(), other_output);
}

void UnfinishedPacking::begin(const PackSettings& settings, bool overwrite) {
  require_own_files(directory_);
  if (!remove_with_files(removed_)) {
    fail(ExitStatus::cannot_write, "cannot remove {}, the rest of a packing ({}); {}",
         removed_.text(), std::strerror(errno), other_output);
  }
  remove_stale_temporaries(output_ / ".");
  remove_stale_temporaries(directory_);
  const std::string text = to_text(settings);
  const std::string old = stored_settings();
  const bool continues = old == text;
  if (old.empty() && directory_.exists() && !entries_in(directory_).empty()) {
    fail(ExitStatus::usage, "{} is not a packing's (it has no {}, and packing needs the name); {}",
         directory_.text(), settings_name, other_output);
  }
  if (!continues && !overwrite && holds_records(directory_)) {
    fail(ExitStatus::usage,
         "{} holds shards that were packed differently ({}); give the same options and files to "
         "continue, another --output, or --overwrite to start again without them",
         directory_.text(), first_difference(old, settings));
  }
  const auto old_files = files_to_replace(output_);
  if (!old_files.empty() && !overwrite && !(continues && publishing_.exists())) {
    fail(
        ExitStatus::usage,
        "{} holds {} shards or lists of a packing already, {} among them (they would be replaced); "
        "choose another --output or give --overwrite",
        output_.path(), old_files.size(),
        std::filesystem::path(old_files.front().text()).filename().string());
  }
  if (!continues && directory_.exists()) end();
  make_directories(directory_, other_output);
  if (!continues) write_text_atomically(settings_, text);
}

std::optional<ShardRecord> UnfinishedPacking::find(const std::string& name) const {
  if (!size_of_own(record(name))) return std::nullopt;
  const ShardRecord found = parse_shard_record(read_text_file(record(name)));
  // Another version's shard, or another HDF5's, is packed again.
  const bool is_stored =
      size_of_own(file(name)) == found.bytes && is_unfinished_shard(open_input(file(name)));
  const bool is_published = publishing_.exists() && size_of_own(output_ / name);
  // A shard is neither if the process was killed while it added the attributes.
  if (!is_stored && !is_published) return std::nullopt;
  return found;
}

void UnfinishedPacking::store(const std::string& name,
                              const std::function<ShardRecord(const TemporaryFile&)>& write) {
  ShardRecord made;
  write_atomically(file(name), [&](const TemporaryFile& temporary) {
    made = write(temporary);
    made.bytes = temporary.bytes();
  });
  write_text_atomically(record(name), to_text(made));
}

void UnfinishedPacking::begin_publishing() {
  if (publishing_.exists()) return;
  remove_old(output_);
  write_text_atomically(publishing_, "");
}

std::uint64_t UnfinishedPacking::publish(const std::string& name,
                                         const ShardAttributes& attributes) {
  const FilePath target = output_ / name;
  if (file(name).exists()) {
    TemporaryFile moved(target, file(name));
    finish_shard(moved, attributes);
    moved.flush();
    moved.publish();
  }
  return require_input(target);
}

void UnfinishedPacking::end() {
  // A directory whose removal was interrupted must not look like a packing to continue.
  const FilePath::Place from = directory_.place();
  const FilePath::Place to = removed_.place();
  const bool is_renamed =
      from.directory && to.directory &&
      ::renameat(from.directory.get(), from.name.c_str(), to.directory.get(), to.name.c_str()) == 0;
  if (is_renamed && remove_with_files(removed_)) return;
  fail(ExitStatus::cannot_write,
       "cannot remove {}, which the finished packing no longer needs ({}); check the permissions "
       "of --output",
       directory_.text(), std::strerror(errno));
}

void UnfinishedPacking::end_interrupted(const PackSettings& settings) {
  if (size_of_own(settings_) && read_text_file(settings_) == to_text(settings)) end();
}

}  // namespace lockstep
