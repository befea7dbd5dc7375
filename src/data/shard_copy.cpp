#include "shard_copy.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/output_file.hpp"

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

/// Passes the bytes of a whole file to `use` in pieces, until `stop` is requested. Their CRC-32C.
template <typename Use>
std::uint32_t read_pieces(const Descriptor& file, const std::string& path,
                          const std::stop_token& stop, const Use& use) {
  std::vector<std::byte> buffer(piece_bytes);
  std::uint32_t checksum = 0;
  for (std::uint64_t offset = 0; !stop.stop_requested();) {
    const auto piece = std::span(buffer).first(read_input(file, path, offset, buffer));
    if (piece.empty()) break;
    checksum = crc32c(piece, checksum);
    use(piece);
    offset += piece.size();
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
    checksum = read_pieces(from, source, stop, [&](std::span<const std::byte> piece) {
      if (const int error = write_all(to, piece); error != 0) cannot_write(target, error);
    });
    if (stop.stop_requested()) return false;
    // Make the read-back come from storage, not from the page cache.
    if (::fdatasync(to.get()) != 0) cannot_write(target, errno);
    ::posix_fadvise(to.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
  const ShardFile copy(target, shard.header);
  if (copy.scan().checksum != shard.checksum) differs(source);
  if (!shard.header.checksums) {
    const std::uint32_t found =
        read_pieces(open_input(target), target, stop, [](std::span<const std::byte>) {});
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
