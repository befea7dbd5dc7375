#include "unfinished_packing.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text_file.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/shard_file.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <algorithm>
#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view record_ending = ".json";
constexpr const char* settings_name = "settings.txt";
constexpr const char* publishing_name = "publishing";

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Nothing if the directory is not there.
std::vector<std::string> visible_names(const std::string& directory) {
  return exists(directory) ? names_in(directory) : std::vector<std::string>();
}

std::vector<fs::path> shards_in(const std::string& directory) {
  std::vector<fs::path> found;
  for (const std::string& file : visible_names(directory)) {
    const auto name = parse_shard_name(file);
    if (name && (name->split == "train" || name->split == "val")) {
      found.push_back(fs::path(directory) / file);
    }
  }
  return found;
}

/// Shards, and the lists beside them.
std::vector<fs::path> files_to_replace(const std::string& directory) {
  std::vector<fs::path> files = shards_in(directory);
  for (const char* name : {skipped_list_name, packing_record_name}) {
    const fs::path path = fs::path(directory) / name;
    if (exists(path.string())) files.push_back(path);
  }
  return files;
}

void remove_old(const std::string& directory) {
  for (const fs::path& path : files_to_replace(directory)) {
    std::error_code error;
    fs::remove(path, error);
    if (error) {
      fail(ExitStatus::cannot_write, "cannot replace {} ({}); check the permissions of --output",
           path.string(), error.message());
    }
  }
}

bool holds_records(const std::string& directory) {
  return std::ranges::any_of(visible_names(directory),
                             [](const std::string& name) { return name.ends_with(record_ending); });
}

/// The directory is removed at the end, so it must hold nothing that is not a packing's.
void require_own_files(const std::string& directory) {
  for (const std::string& name : visible_names(directory)) {
    std::string_view shard = name;
    if (shard.ends_with(record_ending)) shard.remove_suffix(record_ending.size());
    if (name == settings_name || name == publishing_name || name == skipped_list_name ||
        parse_shard_name(shard)) {
      continue;
    }
    fail(ExitStatus::usage,
         "{}/{} is not a packing's (the directory is needed for the packing, and removed at its "
         "end); "
         "choose another --output",
         directory, name);
  }
}

std::string to_text(const PackSettings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) text += fmt::format("{}: {}\n", name, value);
  return text;
}

/// "NAME: VALUE" of the first line of `old` that differs.
std::string first_difference(const std::string& old, const std::string& now) {
  const auto [left, right] = std::mismatch(old.begin(), old.end(), now.begin(), now.end());
  const std::size_t at = static_cast<std::size_t>(left - old.begin());
  const std::size_t begin = at == 0 ? 0 : old.rfind('\n', at - 1) + 1;
  return old.substr(begin, old.find('\n', begin) - begin);
}

}  // namespace

UnfinishedPacking::UnfinishedPacking(const std::string& output)
    : output_(output),
      directory_((fs::path(output) / unfinished_packing).string()),
      removed_((fs::path(output) / fmt::format(".{}.tmp-pack", unfinished_packing)).string()),
      settings_((fs::path(directory_) / settings_name).string()),
      publishing_((fs::path(directory_) / publishing_name).string()) {}

std::string UnfinishedPacking::shard(const std::string& name) const {
  return (fs::path(directory_) / name).string();
}

std::string UnfinishedPacking::record(const std::string& name) const {
  return shard(name) + std::string(record_ending);
}

void UnfinishedPacking::begin(const PackSettings& settings, bool overwrite) {
  std::error_code ignored;
  fs::remove_all(removed_, ignored);
  remove_stale_temporaries(output_);
  remove_stale_temporaries(directory_);
  const std::string text = to_text(settings);
  const std::string old = exists(settings_) ? read_text_file(settings_) : "";
  const bool continues = old == text;
  require_own_files(directory_);
  if (old.empty() && exists(directory_) && !fs::is_empty(directory_, ignored)) {
    fail(
        ExitStatus::usage,
        "{} is not a packing's (it has no {}, and packing needs the name); choose another --output",
        directory_, fs::path(settings_).filename().string());
  }
  if (!continues && !overwrite && holds_records(directory_)) {
    fail(ExitStatus::usage,
         "{} holds shards that were packed differently ({}); give the same options and files to "
         "continue, another --output, or --overwrite to start again without them",
         directory_, first_difference(old, text));
  }
  const auto old_files = files_to_replace(output_);
  if (!old_files.empty() && !overwrite && !(continues && exists(publishing_))) {
    fail(
        ExitStatus::usage,
        "{} holds {} shards or lists of a packing already, {} among them (they would be replaced); "
        "choose another --output or give --overwrite",
        output_, old_files.size(), old_files.front().filename().string());
  }
  if (!continues && exists(directory_)) end();
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) {
    fail(ExitStatus::cannot_write, "cannot create {} ({}); choose another --output", directory_,
         error.message());
  }
  if (!continues) write_text_atomically(settings_, text);
}

std::optional<ShardRecord> UnfinishedPacking::find(const std::string& name) const {
  if (!exists(record(name))) return std::nullopt;
  const ShardRecord found = parse_shard_record(read_text_file(record(name)));
  std::error_code absent;
  const bool is_stored = fs::file_size(shard(name), absent) == found.bytes && !absent;
  const bool is_published = exists(publishing_) && exists((fs::path(output_) / name).string());
  // A shard is neither if the process was killed while it added the attributes.
  if (!is_stored && !is_published) return std::nullopt;
  return found;
}

void UnfinishedPacking::store(const std::string& name,
                              const std::function<ShardRecord(const TemporaryFile&)>& write) {
  ShardRecord made;
  write_atomically(shard(name), [&](const TemporaryFile& temporary) {
    made = write(temporary);
    made.bytes = temporary.bytes();
  });
  write_text_atomically(record(name), to_text(made));
}

void UnfinishedPacking::begin_publishing() {
  if (exists(publishing_)) return;
  remove_old(output_);
  write_text_atomically(publishing_, "");
}

std::uint64_t UnfinishedPacking::publish(const std::string& name,
                                         const ShardAttributes& attributes) {
  const std::string target = (fs::path(output_) / name).string();
  if (exists(shard(name))) {
    TemporaryFile moved(target, shard(name));
    finish_shard(moved, attributes);
    moved.flush();
    moved.publish();
  }
  return fs::file_size(target);
}

void UnfinishedPacking::end() {
  // A directory whose removal was interrupted must not look like a packing to continue.
  std::error_code error;
  fs::rename(directory_, removed_, error);
  if (!error) fs::remove_all(removed_, error);
  if (error) {
    fail(ExitStatus::cannot_write,
         "cannot remove {}, which the finished packing no longer needs ({}); check the permissions "
         "of "
         "--output",
         directory_, error.message());
  }
}

void UnfinishedPacking::end_interrupted(const PackSettings& settings) {
  if (exists(settings_) && read_text_file(settings_) == to_text(settings)) end();
}

}  // namespace lockstep
