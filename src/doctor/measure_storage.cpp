#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_lock.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/data/shard_file.hpp"
#include "lockstep/doctor/judge.hpp"
#include "measure.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::uint64_t most_read = std::uint64_t{256} << 20;
constexpr double longest_read = 2;  ///< seconds
constexpr std::uint64_t most_written = std::uint64_t{64} << 20;
constexpr const char* proof_name = "proof";
constexpr const char* lock_name = "lock";
constexpr const char* filling_name = "filling";
constexpr const char* replacement_name = "replacement";
constexpr int create = O_WRONLY | O_CREAT | O_EXCL;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// A temporary directory: others may have put a link in its place.
FilePath without_link(const fs::path& path) {
  return OpenDirectory(path.parent_path()) / path.filename().string();
}

/// Reads from a random offset, unlikely to be cached; wraps around at the end of the file.
void read_some(const std::string& path, DataFacts& facts) {
  const Descriptor file = open_input(path, "check its mount");
  const std::uint64_t size = fs::file_size(path);
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  std::vector<char> piece(piece_bytes);
  std::uint64_t offset = size < 2 * piece_bytes ? 0 : std::random_device()() % (size - piece_bytes);
  ReadFacts& read = facts.reads.emplace_back();
  const auto begin = Clock::now();
  while (read.bytes < std::min(size, most_read) && since(begin) < longest_read) {
    const ssize_t count =
        ::pread(file.get(), piece.data(), piece.size(), static_cast<off_t>(offset));
    if (count < 0 || (count == 0 && offset == 0)) {
      facts.error = fmt::format("cannot read {} ({}); check its file system", path,
                                count < 0 ? std::strerror(errno) : "it is empty");
      return;
    }
    read.bytes += static_cast<std::uint64_t>(count);
    offset = count == 0 ? 0 : offset + static_cast<std::uint64_t>(count);
  }
  read.seconds = std::max(since(begin), 1e-9);
}

/// The path itself or its nearest existing parent directory.
std::string nearest_directory(const std::string& path) {
  std::error_code ignored;
  fs::path nearest = fs::absolute(path, ignored);
  while (!fs::exists(nearest, ignored) && nearest.has_relative_path()) {
    nearest = nearest.parent_path();
  }
  return nearest.string();
}

/// "it is a FIFO", or the error's text.
std::string reason_of_no_directory(const std::string& path, int error) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || S_ISDIR(status.st_mode)) return std::strerror(error);
  const std::string kind = special_kind(status.st_mode);
  return "it is " + (kind.empty() ? "a file" : kind);
}

}  // namespace

DataFacts measure_data(const std::string& directory, const std::string& node, int number) {
  DataFacts facts{.node = node};
  try {
    const auto names = list_shards(directory, "train");
    facts.shards = static_cast<std::int64_t>(names.size());
    const std::string path =
        directory + "/" + names[static_cast<std::size_t>(number) % names.size()];
    static_cast<void>(ShardFile(path));
    read_some(path, facts);
  } catch (const std::exception& error) {
    facts.error = error.what();
  }
  return facts;
}

RunDirectoryProbe::RunDirectoryProbe(const std::string& run_dir) {
  facts_.path = nearest_directory(run_dir);
  std::string name = facts_.path + "/.lockstep-doctor-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    facts_.error =
        fmt::format("nothing can be written in {} ({}); check --run-dir and its permissions",
                    facts_.path, reason_of_no_directory(facts_.path, errno));
    return;
  }
  path_ = name;
  files_.emplace(without_link(path_));
  const Descriptor own = (*files_ / ".").open(O_RDONLY | O_DIRECTORY);
  // This user may have a different uid on other nodes.
  if (own) ::fchmod(own.get(), S_IRWXU | S_IRWXG);
  write();
  if (facts_.error.empty()) lock();
  link();
}

RunDirectoryProbe::~RunDirectoryProbe() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

void RunDirectoryProbe::write() {
  const auto cannot = [&](const char* what) {
    facts_.error =
        fmt::format("cannot {} a file in {} ({}); check that it is writable and not full", what,
                    facts_.path, std::strerror(errno));
  };
  struct statvfs room {};
  ::statvfs(path_.c_str(), &room);
  const std::uint64_t free = std::uint64_t{room.f_bavail} * room.f_frsize;
  const std::uint64_t bytes = std::min(most_written, free / 4);
  const std::vector<char> piece(piece_bytes, 'x');
  {
    const Descriptor file = (*files_ / filling_name).open(create, S_IRUSR | S_IWUSR | S_IRGRP);
    if (!file) return cannot("create");
    const auto begin = Clock::now();
    std::uint64_t written = 0;
    do {
      const ssize_t count = ::write(file.get(), piece.data(), piece.size());
      if (count < 0) return cannot("write");
      written += static_cast<std::uint64_t>(count);
    } while (written + piece_bytes <= bytes && since(begin) < longest_read);
    if (::fsync(file.get()) != 0) return cannot("flush");
    facts_.write_rate = static_cast<double>(written) / since(begin);
  }
  if (const char* failed = replace_proof()) return cannot(failed);
  const Descriptor log = (*files_ / proof_name).open(O_WRONLY | O_APPEND);
  if (!log || ::write(log.get(), "x", 1) != 1) return cannot("append to");
}

/// As a run does: over a file that is there, then with lines appended. What cannot be done; null:
/// all was.
const char* RunDirectoryProbe::replace_proof() {
  const FilePath::Place proof = (*files_ / proof_name).place();
  if (!(*files_ / proof_name).open(create, S_IRUSR | S_IWUSR)) return "create";
  for (const char* from = filling_name;; from = replacement_name) {
    const auto begin = Clock::now();
    if (::renameat(proof.directory.get(), from, proof.directory.get(), proof_name) != 0) {
      return "replace";
    }
    facts_.rename_seconds.push_back(since(begin));
    const bool is_clear = !is_slow_rename(facts_.rename_seconds.back()) ||
                          facts_.rename_seconds.size() >= measurements_to_find;
    if (is_clear) return nullptr;
    if (!(*files_ / replacement_name).open(create, S_IRUSR | S_IWUSR)) return "create";
  }
}

void RunDirectoryProbe::link() {
  const FilePath::Place at = (*files_ / "link").place();
  if (::symlinkat(proof_name, at.directory.get(), at.name.c_str()) != 0) {
    facts_.no_links = std::strerror(errno);
  }
}

void RunDirectoryProbe::lock() {
  lock_ =
      (*files_ / lock_name).open(O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP);
  if (lock_ && try_lock(lock_) == LockAttempt::got_it) return;
  facts_.lock_error = std::strerror(errno);
}

SpaceFacts RunDirectoryProbe::measure_space(SpaceFacts facts) const {
  facts.path = facts_.path;
  struct statvfs room {};
  if (::statvfs(facts_.path.c_str(), &room) == 0) {
    facts.free = std::uint64_t{room.f_bavail} * room.f_frsize;
  }
  if (!files_) return facts;
  // statvfs does not show quotas, but a reservation fails if it exceeds one.
  const FilePath name = *files_ / "reservation";
  const Descriptor file = name.open(create, S_IRUSR | S_IWUSR);
  if (file && ::fallocate(file.get(), 0, 0, static_cast<off_t>(facts.checkpoint)) != 0 &&
      (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
    facts.refused = std::strerror(errno);
  }
  name.remove();
  return facts;
}

SharedDirectoryFacts look_into_run_directory(const std::string& probe_path,
                                             const std::string& node) {
  SharedDirectoryFacts facts{.node = node};
  for (const auto end = Clock::now() + longest_look;;) {
    struct stat status {};
    facts.sees_file = ::stat((probe_path + "/" + proof_name).c_str(), &status) == 0;
    if (facts.sees_file) break;
    facts.error = std::strerror(errno);
    if (Clock::now() > end) return facts;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  facts.error.clear();
  // Opened only now, since the directory may just have appeared on this node.
  const OpenDirectory files(without_link(probe_path));
  const FilePath own = files / ("from-" + node);
  {
    const Descriptor file = own.open(create, S_IRUSR | S_IWUSR);
    facts.can_write = file && ::write(file.get(), "x", 1) == 1;
    if (!facts.can_write) facts.error = std::strerror(errno);
  }
  own.remove();
  const Descriptor lock = (files / lock_name).open(O_RDWR);
  facts.got_lock = lock && try_lock(lock) == LockAttempt::got_it;
  return facts;
}

}  // namespace lockstep::doctor
