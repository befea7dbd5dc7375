#include "lockstep/core/file_link.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "lockstep/core/descriptor.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view suffix = ".h5";
constexpr std::size_t most_bytes = 256;

/// The name in a text file; empty if the file holds something else. An HDF5 file begins with a byte
/// that no name has.
std::string name_in_text(const FilePath& path) {
  const FilePath::Place at = path.place();
  struct stat status {};
  if (!at.directory ||
      ::fstatat(at.directory.get(), at.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 ||
      !S_ISREG(status.st_mode)) {
    return {};
  }
  if (static_cast<std::size_t>(status.st_size) > most_bytes) return {};
  const Descriptor file(::openat(at.directory.get(), at.name.c_str(),
                                 O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  std::array<char, most_bytes> bytes{};
  const auto count =
      file ? read_at(file, 0, std::as_writable_bytes(std::span(bytes))) : std::nullopt;
  std::string_view name(bytes.data(), count.value_or(0));
  if (name.ends_with('\n')) name.remove_suffix(1);
  if (name.ends_with('\r')) name.remove_suffix(1);
  const bool is_name =
      std::ranges::all_of(name, [](char c) { return c > ' ' && c < 127 && c != '/'; });
  return is_name && name.ends_with(suffix) ? std::string(name) : std::string();
}

}  // namespace

std::string name_behind(const FilePath& path) {
  const std::string target = path.link_target();
  if (target.empty()) return name_in_text(path);
  const bool leads_out = !path.follows_links() && target.find('/') != std::string::npos;
  return leads_out ? std::string() : fs::path(target).filename().string();
}

FilePath follow_file_link(const std::string& path) {
  const std::string name = name_in_text(path);
  if (name.empty()) return path;
  const std::string parent = fs::path(path).parent_path().string();
  return OpenDirectory(parent.empty() ? "." : parent) / name;
}

std::string file_link_text(std::string_view name) {
  return std::string(name) + "\n";
}

}  // namespace lockstep
