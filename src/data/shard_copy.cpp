#include "shard_copy.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <vector>

namespace lockstep {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;
/// Samples verified between two checks for a stop request.
constexpr std::int64_t samples_between_looks = 64;

[[noreturn]] void cannot_write(const std::string& path, int error) {
  fail(ExitStatus::cannot_write,
       "cannot write {} ({}); check that --stage-dir is writable and not full", path,
       std::strerror(error));
}

/// Reads at most buffer.size() bytes; empty at the end of the file.
std::span<const std::byte> read_piece(const Descriptor& file, const std::string& path,
                                      std::vector<std::byte>& buffer) {
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count >= 0) return std::span(buffer).first(static_cast<std::size_t>(count));
    if (errno != EINTR) {
      fail(status_of_read_failure(errno), "cannot read {} ({}); check its file system", path,
           std::strerror(errno));
    }
  }
}

void write_piece(const Descriptor& file, const std::string& path,
                 std::span<const std::byte> piece) {
  while (!piece.empty()) {
    const ssize_t count = ::write(file.get(), piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot_write(path, errno);
    piece = piece.subspan(static_cast<std::size_t>(count));
  }
}

/// CRC-32C of a whole file; meaningless if `stop` was requested.
std::uint32_t checksum_of_file(const std::string& path, const std::stop_token& stop) {
  const Descriptor file = open_input(path);
  std::vector<std::byte> buffer(piece_bytes);
  std::uint32_t checksum = 0;
  while (!stop.stop_requested()) {
    const auto piece = read_piece(file, path, buffer);
    if (piece.empty()) break;
    checksum = crc32c(piece, checksum);
  }
  return checksum;
}

[[noreturn]] void differs(const std::string& source) {
  fail(
      ExitStatus::bad_input,
      "the copy of {} is not what was validated (the file, or what it was copied to, has changed); "
      "check the storage",
      source);
}

}  // namespace

bool copy_shard(const ShardToCopy& shard, const std::string& target, const std::stop_token& stop) {
  const std::string source = shard.directory + "/" + shard.name;
  std::uint32_t checksum = 0;
  {
    const Descriptor from = open_input(source);
    const Descriptor to(
        ::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (!to) cannot_write(target, errno);
    std::vector<std::byte> buffer(piece_bytes);
    for (;;) {
      if (stop.stop_requested()) return false;
      const auto piece = read_piece(from, source, buffer);
      if (piece.empty()) break;
      checksum = crc32c(piece, checksum);
      write_piece(to, target, piece);
    }
    // Make the read-back come from storage, not from the page cache.
    if (::fdatasync(to.get()) != 0) cannot_write(target, errno);
    ::posix_fadvise(to.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  const ShardFile copy(target, shard.header);
  if (copy.scan().checksum != shard.checksum) differs(source);
  if (!shard.header.checksums) {
    const std::uint32_t found = checksum_of_file(target, stop);
    if (stop.stop_requested()) return false;
    if (found != checksum) differs(source);
    return true;
  }
  RawSample sample;
  for (std::int64_t i = 0; i < shard.header.samples; ++i) {
    if (i % samples_between_looks == 0 && stop.stop_requested()) return false;
    copy.read(i, sample);
  }
  return true;
}

}  // namespace lockstep
