#include "lockstep/core/directory.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

namespace lockstep {
namespace {

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};
using Listing = std::unique_ptr<DIR, CloseDirectory>;

/// "a FIFO", ...; empty for a directory, and if there is nothing at the path.
std::string kind_of_no_directory(const FilePath& path) {
  struct stat status {};
  if (!path.get_status(status) || S_ISDIR(status.st_mode)) return {};
  return S_ISREG(status.st_mode) ? "a file" : special_kind(status.st_mode);
}

[[noreturn]] void cannot_list(const FilePath& path, int error, const char* suggestion) {
  require_directory_if_present(path, suggestion);
  fail(status_of_read_failure(error), "cannot list {} ({}); {}", path.text(), std::strerror(error),
       suggestion);
}

/// All names but "." and "..", sorted.
std::vector<std::string> all_names(DIR* directory, const FilePath& path, const char* suggestion) {
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) cannot_list(path, errno, suggestion);
  std::sort(names.begin(), names.end());
  return names;
}

Listing open_listing(const FilePath& path, const char* suggestion) {
  Descriptor file = path.open(O_RDONLY | O_DIRECTORY);
  Listing directory(file ? ::fdopendir(file.get()) : nullptr);
  if (!directory) cannot_list(path, errno, suggestion);
  static_cast<void>(file.release());
  return directory;
}

}  // namespace

bool is_hidden_or_temporary(std::string_view name) noexcept {
  static constexpr std::array<std::string_view, 5> made_by_systems{
      "__MACOSX", "@eaDir", "lost+found", "$RECYCLE.BIN", "System Volume Information"};
  return name.starts_with('.') || name.ends_with('~') || name.ends_with(".swp") ||
         std::find(made_by_systems.begin(), made_by_systems.end(), name) != made_by_systems.end();
}

bool is_hidden_path(std::string_view path) noexcept {
  while (!path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    if (name != "." && name != ".." && is_hidden_or_temporary(name)) return true;
    path.remove_prefix(std::min(name.size() + 1, path.size()));
  }
  return false;
}

std::vector<std::string> names_in(const FilePath& directory, const char* suggestion) {
  std::vector<std::string> names =
      all_names(open_listing(directory, suggestion).get(), directory, suggestion);
  std::erase_if(names, is_hidden_or_temporary);
  return names;
}

std::vector<DirectoryEntry> entries_in(const FilePath& directory, const char* suggestion) {
  const Listing open = open_listing(directory, suggestion);
  const int flags = directory.follows_links() ? 0 : AT_SYMLINK_NOFOLLOW;
  std::vector<DirectoryEntry> entries;
  for (std::string& name : all_names(open.get(), directory, suggestion)) {
    DirectoryEntry& entry = entries.emplace_back();
    entry.name = std::move(name);
    if (::fstatat(::dirfd(open.get()), entry.name.c_str(), &entry.status, flags) != 0) {
      entry.error = errno;
    }
  }
  return entries;
}

void require_directory_if_present(const FilePath& path, const char* suggestion) {
  const std::string kind = kind_of_no_directory(path);
  if (kind.empty()) return;
  fail(ExitStatus::bad_input, "{} is {} (a directory is expected); {}", path.text(), kind,
       suggestion);
}

void make_directories(const FilePath& directory, const char* suggestion) {
  std::string reason;
  if (directory.follows_links()) {
    std::error_code error;
    std::filesystem::create_directories(directory.text(), error);
    reason = error.message();
  } else if (!directory.make_directory()) {
    reason = std::strerror(errno);
  }
  struct stat status {};
  if (directory.get_status(status) && S_ISDIR(status.st_mode)) return;
  if (const std::string kind = kind_of_no_directory(directory); !kind.empty()) {
    reason = "it is " + kind;
  } else if (directory.follows_links()) {
    for (std::filesystem::path at = directory.text(); at.has_relative_path();) {
      at = at.parent_path();
      const std::string of_parent = kind_of_no_directory(at);
      if (!of_parent.empty()) reason = at.string() + " is " + of_parent;
    }
  }
  fail(ExitStatus::cannot_write, "cannot create directory {} ({}); {}", directory.text(), reason,
       suggestion);
}

}  // namespace lockstep
