#include "manifest.hpp"

#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/io/sha256.hpp"

#include <sys/stat.h>
#include <unistd.h>
#include <boost/algorithm/string/replace.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <map>
#include <string_view>
#include <thread>

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

/// Reading is faster with several files at a time on parallel file systems.
constexpr std::size_t most_threads = 16;

bool is_below(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first ==
         directory.end();
}

struct stat status_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    fail(status_of_read_failure(errno), "cannot read {} ({}); check the path", path,
         std::strerror(errno));
  }
  return status;
}

/// The files of a manifest, by their names in it.
class Listing final {
 public:
  Listing(const std::vector<std::string>& paths, const std::string& except) {
    if (!except.empty()) {
      const fs::path output = fs::weakly_canonical(except);
      for (const char* ending : {"", ".asc", ".minisig", ".sig"}) {
        omitted_.push_back(output.string() + ending);
      }
    }
    for (const std::string& path : paths) add(path);
    if (files_.empty()) {
      fail(ExitStatus::bad_input, "{} has no file to list; check the path", paths.front());
    }
  }

  [[nodiscard]] const std::map<std::string, std::string>& files() const noexcept { return files_; }

 private:
  void add(const std::string& path) {
    const bool is_directory = S_ISDIR(status_of(path).st_mode);
    const fs::path absolute = fs::absolute(path).lexically_normal();
    const fs::path base = fs::canonical(is_directory ? absolute : absolute.parent_path());
    if (base_.empty()) base_ = base;
    if (base != base_) {
      fail(ExitStatus::usage,
           "--manifest of {} and of {} (its names are relative to one directory); write a manifest "
           "for each",
           base_.string(), base.string());
    }
    if (is_directory) {
      add_directory("");
    } else {
      add_file(absolute.filename().string());
    }
  }

  /// `folder`: its name below the base, and a slash; the base itself is empty.
  void add_directory(const std::string& folder) {
    for (const DirectoryEntry& entry : entries_in((base_ / folder).string())) {
      if (is_hidden_or_temporary(entry.name)) continue;
      const std::string name = folder + entry.name;
      if (fs::is_symlink(base_ / name)) {
        require_target_below(name);
      } else if (entry.is_directory()) {
        add_directory(name + "/");
      } else {
        add_file(name);
      }
    }
  }

  /// A link may only point to a file of the same directory, which is listed under its own name.
  void require_target_below(const std::string& name) const {
    std::error_code error;
    const fs::path target = fs::canonical(base_ / name, error);
    if (!error && is_below(target, base_)) return;
    fail(ExitStatus::bad_input,
         "{} is a link to {}, which is not in {} (a manifest lists only what is); name the file "
         "itself",
         (base_ / name).string(), fs::read_symlink(base_ / name, error).string(), base_.string());
  }

  void add_file(const std::string& name) {
    const std::string path = (base_ / name).string();
    if (std::ranges::count(omitted_, path) > 0 || is_standard_output(path)) return;
    files_.emplace(name, path);
  }

  static bool is_standard_output(const std::string& path) {
    const struct stat file = status_of(path);
    struct stat output {};
    return ::fstat(STDOUT_FILENO, &output) == 0 && file.st_dev == output.st_dev &&
           file.st_ino == output.st_ino;
  }

  fs::path base_;
  std::vector<std::string> omitted_;
  std::map<std::string, std::string> files_;
};

/// By index of the path. Throws the first path's error.
std::vector<std::string> sums_of(const std::vector<std::string>& paths) {
  std::vector<std::string> sums(paths.size());
  std::vector<std::exception_ptr> errors(paths.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < paths.size(); i = next++) {
      try {
        sums[i] = sha256_of_file(paths[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads(std::min({cores, most_threads, paths.size()}));
    for (std::jthread& thread : threads) thread = std::jthread(work);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return sums;
}

/// A line of `sha256sum`. A name with one of these characters is escaped, and the line marked.
std::string line_of(const std::string& sum, const std::string& name) {
  std::string escaped = boost::replace_all_copy(name, "\\", "\\\\");
  boost::replace_all(escaped, "\n", "\\n");
  boost::replace_all(escaped, "\r", "\\r");
  return fmt::format("{}{}  {}\n", escaped == name ? "" : "\\", sum, escaped);
}

}  // namespace

std::string manifest(const std::vector<std::string>& named, const std::string& output) {
  const Listing listing(named, output);
  std::vector<std::string> paths;
  std::ranges::transform(listing.files(), std::back_inserter(paths),
                         [](const auto& file) { return file.second; });
  const std::vector<std::string> sums = sums_of(paths);
  std::string text;
  auto sum = sums.begin();
  for (const auto& [name, path] : listing.files()) text += line_of(*sum++, name);
  return text;
}

}  // namespace lockstep::cli
