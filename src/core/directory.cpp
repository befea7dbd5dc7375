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
using OpenDirectory = std::unique_ptr<DIR, CloseDirectory>;

/// "a FIFO", ...; empty for a directory, and if there is nothing at the path.
std::string kind_of_no_directory(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) return {};
  return S_ISREG(status.st_mode) ? "a file" : special_kind(status.st_mode);
}

[[noreturn]] void cannot_list(const std::string& path, int error, const char* suggestion) {
  require_directory_if_present(path, suggestion);
  fail(status_of_read_failure(error), "cannot list {} ({}); {}", path, std::strerror(error),
       suggestion);
}

/// All names but "." and "..", sorted.
std::vector<std::string> all_names(DIR* directory, const std::string& path,
                                   const char* suggestion) {
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

OpenDirectory open_directory(const std::string& path, const char* suggestion) {
  // opendir() does not block on a FIFO: it asks for a directory.
  OpenDirectory directory(::opendir(path.c_str()));
  if (!directory) cannot_list(path, errno, suggestion);
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

std::vector<std::string> names_in(const std::string& directory, const char* suggestion) {
  std::vector<std::string> names =
      all_names(open_directory(directory, suggestion).get(), directory, suggestion);
  std::erase_if(names, is_hidden_or_temporary);
  return names;
}

std::vector<DirectoryEntry> entries_in(const std::string& directory, const char* suggestion) {
  const OpenDirectory open = open_directory(directory, suggestion);
  std::vector<DirectoryEntry> entries;
  for (std::string& name : all_names(open.get(), directory, suggestion)) {
    DirectoryEntry& entry = entries.emplace_back();
    entry.name = std::move(name);
    if (::fstatat(::dirfd(open.get()), entry.name.c_str(), &entry.status, 0) != 0) {
      entry.error = errno;
    }
  }
  return entries;
}

void require_directory_if_present(const std::string& path, const char* suggestion) {
  const std::string kind = kind_of_no_directory(path);
  if (kind.empty()) return;
  fail(ExitStatus::bad_input, "{} is {} (a directory is expected); {}", path, kind, suggestion);
}

void make_directories(const std::string& directory, const char* suggestion) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  struct stat status {};
  if (!error && ::stat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return;
  std::string reason = error.message();
  for (std::filesystem::path at = directory; at.has_relative_path(); at = at.parent_path()) {
    const std::string kind = kind_of_no_directory(at.string());
    if (!kind.empty()) reason = (at == directory ? "it" : at.string()) + " is " + kind;
  }
  fail(ExitStatus::cannot_write, "cannot create directory {} ({}); {}", directory, reason,
       suggestion);
}

}  // namespace lockstep
