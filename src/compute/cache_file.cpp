#include "cache_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/text_file.hpp"
#include "lockstep/io/atomic_file.hpp"

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

namespace lockstep {

CacheFile::CacheFile(std::string path, const Format& format)
    : path_(std::move(path)), format_(format) {}

CacheFile::Entries CacheFile::read() const {
  Entries entries;
  std::istringstream file;
  try {
    file.str(read_text_file(path_));
  } catch (const Error&) {
    return entries;
  }
  for (std::string line; std::getline(file, line);) {
    std::size_t tab = line.size();
    for (int column = 0; column < format_.columns && tab != std::string::npos; ++column) {
      tab = tab == 0 ? std::string::npos : line.rfind('\t', tab - 1);
    }
    if (tab == std::string::npos) continue;
    std::string value = line.substr(tab + 1);
    if (format_.is_usable(value)) entries[line.substr(0, tab)] = std::move(value);
  }
  return entries;
}

CacheFile::Entries& CacheFile::entries() {
  if (!entries_) entries_ = read();
  return *entries_;
}

std::optional<std::string> CacheFile::find(const std::string& key) {
  const auto found = entries().find(key);
  return found == entries().end() ? std::nullopt : std::optional(found->second);
}

void CacheFile::add(const std::string& key, std::string value) {
  entries()[key] = std::move(value);
  changed_ = true;
}

void CacheFile::save() {
  if (!changed_ || path_.empty()) return;
  changed_ = false;
  Entries merged = entries();
  merged.merge(read());  // another job may have added entries
  std::string text(format_.header);
  for (const auto& [key, value] : merged) text += fmt::format("{}\t{}\n", key, value);
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  try {
    write_text_atomically(path_, text);
  } catch (const Error&) {
    return;  // cannot be written: the next start finds out again
  }
}

std::string cache_path(std::string_view name) {
  // The XDG specification ignores relative paths.
  const auto directory = [](const char* variable) -> std::filesystem::path {
    const char* value = std::getenv(variable);
    return value != nullptr && *value == '/' ? value : "";
  };
  std::filesystem::path base = directory("XDG_CACHE_HOME");
  if (base.empty() && !directory("HOME").empty()) base = directory("HOME") / ".cache";
  return base.empty() ? std::string() : (base / "lockstep" / name).string();
}

}  // namespace lockstep
