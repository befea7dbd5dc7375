#include "memory_storage.hpp"

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

struct Mount {
  std::string device;   ///< "0:45"
  std::string source;   ///< "/dev/zram0", "overlay"
  std::string options;  ///< of the file system, "rw,upperdir=/run/upper"
};

/// "36 35 0:45 / /mnt rw,noatime shared:1 - overlay overlay rw,upperdir=/run/upper"
std::optional<Mount> parse_mount(const std::string& line) {
  constexpr std::string_view separator = " - ";
  const std::size_t end = line.find(separator);
  if (end == std::string::npos) return std::nullopt;
  std::istringstream before(line.substr(0, end));
  std::istringstream after(line.substr(end + separator.size()));
  std::string skipped;
  Mount mount;
  before >> skipped >> skipped >> mount.device;
  after >> skipped >> mount.source >> mount.options;
  return mount;
}

std::optional<Mount> mount_of(const std::string& path, const std::string& mounts) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  const std::string device = fmt::format("{}:{}", major(status.st_dev), minor(status.st_dev));
  std::ifstream file(mounts);
  for (std::string line; std::getline(file, line);) {
    auto mount = parse_mount(line);
    if (mount && mount->device == device) return mount;
  }
  return std::nullopt;
}

/// "/run/upper" of "rw,upperdir=/run/upper,workdir=/run/work".
std::string upper_directory(const std::string& options) {
  constexpr std::string_view name = "upperdir=";
  const std::size_t begin = options.find(name);
  if (begin == std::string::npos) return {};
  const std::size_t first = begin + name.size();
  return options.substr(first, options.find(',', first) - first);
}

std::string kind_of(long type) {
  if (type == TMPFS_MAGIC) return "tmpfs";
  if (type == RAMFS_MAGIC) return "ramfs";
  if (type == HUGETLBFS_MAGIC) return "hugetlbfs";
  return {};
}

}  // namespace

std::string memory_file_system(const std::string& path, const std::string& mounts) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) return {};
  const auto type = static_cast<long>(static_cast<unsigned int>(status.f_type));
  if (std::string kind = kind_of(type); !kind.empty()) return kind;
  const auto mount = mount_of(path, mounts);
  if (!mount) return {};
  if (type == OVERLAYFS_SUPER_MAGIC) {
    const std::string upper = upper_directory(mount->options);
    const std::string kind = upper.empty() ? "" : memory_file_system(upper, mounts);
    return kind.empty() ? "" : "overlay on " + kind;
  }
  constexpr std::array devices{"/dev/ram", "/dev/zram"};
  const bool is_memory = std::ranges::any_of(
      devices, [&](const char* device) { return mount->source.starts_with(device); });
  return is_memory ? mount->source : std::string();
}

bool has_size(const std::string& path) {
  struct statvfs status {};
  return ::statvfs(path.c_str(), &status) != 0 || status.f_blocks > 0;
}

MemoryLimit memory_for_files(int processes) {
  const auto limits = node_memory_left({.count = processes, .lookup = environment_variable});
  if (limits.empty()) {
    return {.bytes = std::numeric_limits<std::uint64_t>::max(), .source = "unknown"};
  }
  return std::ranges::min(limits, {}, &MemoryLimit::bytes);
}

}  // namespace lockstep
