#include "hdf5_input.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/io/other_format.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

namespace lockstep::h5 {
namespace {

constexpr std::string_view signature = "\x89HDF\r\n\x1a\n";
constexpr std::size_t window_bytes = std::size_t{8} << 10;
constexpr std::uint64_t max_file_bytes = std::uint64_t{1} << 62;

/// Bob Jenkins' lookup3 hash ("hashlittle") with initial value 0, the checksum of all metadata.
std::uint32_t lookup3(std::span<const std::byte> bytes) noexcept {
  std::uint32_t a = 0xdeadbeefU + static_cast<std::uint32_t>(bytes.size());
  std::uint32_t b = a;
  std::uint32_t c = a;
  const auto mix = [](std::uint32_t& x, std::uint32_t& y, int bits, std::uint32_t z) {
    x = (x - y) ^ std::rotl(y, bits);
    y += z;
  };
  while (bytes.size() > 12) {
    std::array<std::uint32_t, 3> words{};
    std::memcpy(words.data(), bytes.data(), 12);
    a += words[0];
    b += words[1];
    c += words[2];
    mix(a, c, 4, b);
    mix(b, a, 6, c);
    mix(c, b, 8, a);
    mix(a, c, 16, b);
    mix(b, a, 19, c);
    mix(c, b, 4, a);
    bytes = bytes.subspan(12);
  }
  if (bytes.empty()) return c;
  std::array<std::uint32_t, 3> words{};
  std::memcpy(words.data(), bytes.data(), bytes.size());
  a += words[0];
  b += words[1];
  c += words[2];
  const auto finish = [](std::uint32_t& x, std::uint32_t y, int bits) {
    x = (x ^ y) - std::rotl(y, bits);
  };
  finish(c, b, 14);
  finish(a, c, 11);
  finish(b, a, 25);
  finish(c, b, 16);
  finish(a, c, 4);
  finish(b, a, 14);
  finish(c, b, 24);
  return c;
}

bool begins_with(std::span<const std::byte> block, std::string_view text) noexcept {
  return block.size() >= text.size() && std::memcmp(block.data(), text.data(), text.size()) == 0;
}

/// The file offset of the superblock: 0, or after a user block of 512 bytes or a power of two more.
std::optional<std::uint64_t> find_superblock(const Descriptor& file, std::uint64_t size) {
  for (std::uint64_t offset = 0; offset < size; offset = offset == 0 ? 512 : offset * 2) {
    std::array<std::byte, signature.size()> start{};
    const auto count = read_at(file, offset, start);
    if (!count) fail(status_of_read_failure(errno), "{}", std::strerror(errno));
    if (*count == start.size() && begins_with(start, signature)) return offset;
  }
  return std::nullopt;
}

/// Names the format of a file that is not HDF5, if that is known.
[[noreturn]] void not_hdf5(const std::string& path, const Descriptor& file, std::uint64_t size) {
  std::string start(static_cast<std::size_t>(std::min<std::uint64_t>(size, most_start_bytes)),
                    '\0');
  const auto read = read_at(file, 0, std::as_writable_bytes(std::span(start)));
  start.resize(read.value_or(0));
  if (const auto other = other_format({.path = path, .bytes = start, .size = size})) {
    fail(ExitStatus::bad_input, "{} is {} ({} bytes; HDF5 is read); {}", path, other->kind, size,
         other->advice);
  }
  fail(ExitStatus::bad_input,
       "{} is not a whole HDF5 file (it has no HDF5 signature; {} bytes); copy or write it again",
       path, size);
}

}  // namespace

Input::Input(const FilePath& path) : path_(path.text()) {
  // Before open_input(), which would only say that this is a directory.
  refuse_saved_model(path_);
  file_ = open_input(path);
  size_ = size_of(file_, path_);
  const auto start = find_superblock(file_, size_);
  if (!start) not_hdf5(path_, file_, size_);
  base_ = *start;
  read_superblock();
}

void Input::damaged(std::string_view what) const {
  fail(ExitStatus::bad_input, "{} is not a whole HDF5 file ({}; {} bytes); copy or write it again",
       path_, what, size_);
}

bool Input::holds(std::uint64_t address, std::uint64_t count) const noexcept {
  const std::uint64_t bytes = size_ - base_;
  return address <= bytes && count <= bytes - address;
}

void Input::read_file(std::uint64_t offset, std::span<std::byte> bytes,
                      std::string_view what) const {
  const auto count = read_at(file_, offset, bytes);
  if (!count) {
    fail(status_of_read_failure(errno), "cannot read {} at byte {} ({}); check its file system",
         path_, offset, std::strerror(errno));
  }
  if (*count < bytes.size()) damaged(fmt::format("it ends in {}", what));
}

void Input::read(std::uint64_t address, std::span<std::byte> bytes, std::string_view what) const {
  if (!holds(address, bytes.size())) damaged(fmt::format("{} lies beyond its end", what));
  if (bytes.empty()) return;
  const std::uint64_t offset = base_ + address;
  if (bytes.size() > window_bytes / 2) {
    read_file(offset, bytes, what);
    return;
  }
  const std::lock_guard lock(window_mutex_);
  if (offset < window_begin_ || offset + bytes.size() > window_begin_ + window_.size()) {
    window_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(window_bytes, size_ - offset)));
    window_begin_ = offset;
    try {
      read_file(offset, window_, what);
    } catch (...) {
      window_.clear();
      throw;
    }
  }
  std::memcpy(bytes.data(), window_.data() + (offset - window_begin_), bytes.size());
}

Bytes Input::read(std::uint64_t address, std::uint64_t count, std::string_view what) const {
  // Before memory is taken for a length that a damaged file claims.
  if (!holds(address, count)) damaged(fmt::format("{} lies beyond its end", what));
  Bytes bytes(static_cast<std::size_t>(count));
  read(address, bytes, what);
  return bytes;
}

Bytes Input::read_block(std::uint64_t address, std::uint64_t count,
                        std::string_view block_signature) const {
  Bytes block = read(address, count, block_signature);
  if (!begins_with(block, block_signature)) {
    damaged(fmt::format("there is no {} at byte {}", block_signature, base_ + address));
  }
  return block;
}

Bytes Input::read_checked(std::uint64_t address, std::uint64_t count,
                          std::string_view block_signature) const {
  Bytes block = read_block(address, count, block_signature);
  std::uint32_t stored = 0;
  if (block.size() < block_signature.size() + sizeof(stored)) damaged(block_signature);
  const auto rest = std::span(block).first(block.size() - sizeof(stored));
  std::memcpy(&stored, block.data() + rest.size(), sizeof(stored));
  require_checksum(rest, stored, fmt::format("{} at byte {}", block_signature, base_ + address));
  return block;
}

void Input::require_checksum(std::span<const std::byte> bytes, std::uint32_t stored,
                             std::string_view what) const {
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  // A fuzzer cannot make checksums, so they would hide all that follows from it.
  if (lookup3(bytes) != stored) damaged(fmt::format("the checksum of {} does not match", what));
#else
  static_cast<void>(bytes.size() + stored + what.size());
#endif
}

void Input::read_superblock() {
  constexpr std::string_view what = "its superblock";
  const auto refuse = [this](std::string_view feature) {
    fail(ExitStatus::bad_input, "{} has {} (not read); write it again by h5py with its defaults",
         path_, feature);
  };
  // No block address can overflow 64 bits.
  if (size_ > max_file_bytes) refuse(fmt::format("{} bytes", size_));
  constexpr std::uint64_t newest_bytes = 48;
  const Bytes start = read(0, std::min<std::uint64_t>(size_ - base_, 112), what);
  Cursor cursor(*this, start, what);
  cursor.skip(signature.size());
  const std::uint8_t version = cursor.byte();
  if (version > 3) damaged(fmt::format("version {} of the superblock is not known", version));
  const bool is_old = version < 2;
  if (is_old) cursor.skip(4);  // versions of other parts
  if (cursor.byte() != 8 || cursor.byte() != 8)
    refuse("addresses or lengths of other than 8 bytes");
  if (is_old) {
    cursor.skip(version == 0 ? 9 : 13);  // reserved, sizes of B-trees, flags
  } else if (const std::uint8_t flags = cursor.byte(); (flags & 1) != 0) {
    damaged("a program has it open for writing, or ended without closing it");
  }
  const std::uint64_t base = cursor.address();
  if (base != base_ && base != 0) damaged("its base address is wrong");
  cursor.skip(8);  // free space, or the superblock's extension
  const std::uint64_t end = cursor.address();
  if (is_old) {
    if (cursor.address() != undefined) refuse("a file driver of its own");
    cursor.skip(8);  // the root's name
  }
  root_ = cursor.address();
  if (!is_old) static_cast<void>(read_checked(0, newest_bytes, signature));
  if (end > size_) damaged(fmt::format("it is truncated: its header says {} bytes", end));
}

}  // namespace lockstep::h5
