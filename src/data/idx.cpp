#include "lockstep/data/idx.hpp"

#include "lockstep/core/error.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace lockstep {
namespace {

// Deflate expands a byte to at most 1032 bytes (RFC 1951: 258 bytes from two bits).
constexpr std::uint64_t max_expansion = 1032;
constexpr std::size_t max_axes = 3;

/// Sequential bytes, read directly or inflated.
class ByteSource final {
 public:
  ByteSource(std::span<const std::byte> bytes, const std::string& name)
      : rest_(bytes),
        name_(name),
        compressed_(bytes.size() >= 2 && bytes[0] == std::byte{0x1f} &&
                    bytes[1] == std::byte{0x8b}) {
    if (!compressed_) return;
    // 16: accept only a gzip header.
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) {
      compressed_ = false;
      fail(ExitStatus::internal, "zlib cannot start (out of memory); give the process more memory");
    }
  }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  ~ByteSource() {
    if (compressed_) inflateEnd(&stream_);
  }

  /// Upper bound of the bytes that can still be read.
  [[nodiscard]] std::uint64_t limit() const noexcept {
    return compressed_ ? (rest_.size() + 1) * max_expansion + window_ : rest_.size();
  }

  /// Reads up to out.size() bytes; returns how many.
  std::size_t read(std::span<std::byte> out) {
    return compressed_ ? inflate_into(out) : copy_into(out);
  }

  /// Whether all bytes were read and, for gzip, the trailing checksum and length are right.
  [[nodiscard]] bool at_end() {
    std::byte more{};
    return read({&more, 1}) == 0 && rest_.empty() && (!compressed_ || ended_);
  }

 private:
  std::size_t copy_into(std::span<std::byte> out) {
    const std::size_t count = std::min(out.size(), rest_.size());
    std::copy_n(rest_.begin(), count, out.begin());
    rest_ = rest_.subspan(count);
    return count;
  }

  std::size_t inflate_into(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      constexpr std::size_t piece = std::size_t{1} << 30;  // zlib counts in unsigned int
      const std::size_t in = std::min(rest_.size(), piece);
      const std::size_t wanted = std::min(out.size() - done, piece);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));
      stream_.avail_in = static_cast<uInt>(in);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = static_cast<uInt>(wanted);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      rest_ = rest_.subspan(in - stream_.avail_in);
      done += wanted - stream_.avail_out;
      if (status == Z_STREAM_END) {
        ended_ = true;
      } else if (status == Z_BUF_ERROR) {
        break;  // the input ended early
      } else if (status != Z_OK) {
        fail(ExitStatus::bad_input, "{}: damaged gzip data ({}); fetch the file again", name_,
             stream_.msg != nullptr ? stream_.msg : "zlib gives no reason");
      }
    }
    return done;
  }

  static constexpr std::uint64_t window_ = 1 << 16;  // bytes that zlib may buffer
  std::span<const std::byte> rest_;
  const std::string& name_;
  bool compressed_;
  bool ended_ = false;
  z_stream stream_{};
};

std::uint32_t big_endian(std::span<const std::byte, 4> bytes) {
  std::uint32_t value = 0;
  for (const std::byte byte : bytes) value = (value << 8) | std::to_integer<std::uint32_t>(byte);
  return value;
}

std::uint32_t read_word(ByteSource& source, const std::string& name) {
  std::array<std::byte, 4> word{};
  if (source.read(word) != word.size()) {
    fail(ExitStatus::bad_input,
         "{}: the file ends inside its IDX header (truncated); fetch it again", name);
  }
  return big_endian(word);
}

}  // namespace

IdxFile parse_idx(std::span<const std::byte> bytes, const std::string& name) {
  ByteSource source(bytes, name);
  const std::uint32_t magic = read_word(source, name);
  const std::uint32_t axes = magic & 0xFFu;
  if ((magic >> 8) != 0x08u || axes < 1 || axes > max_axes) {
    fail(ExitStatus::bad_input,
         "{}: not an IDX file of unsigned bytes (starts with {:#010x}; expected 0x00000801 to "
         "{:#010x})",
         name, magic, 0x0800u + max_axes);
  }
  IdxFile file;
  std::uint64_t total = 1;
  for (std::uint32_t axis = 0; axis < axes; ++axis) {
    file.dims.push_back(read_word(source, name));
    const std::uint64_t extent = file.dims.back();
    if (extent != 0 && total > std::numeric_limits<std::uint64_t>::max() / extent) {
      fail(ExitStatus::bad_input,
           "{}: the IDX header's extents overflow (damaged header); get the file again", name);
    }
    total *= extent;
  }
  // Check before allocating, since the header is not trusted.
  if (total > source.limit()) {
    fail(ExitStatus::bad_input,
         "{}: the header announces {} bytes, the file holds at most {} (truncated or damaged); "
         "fetch "
         "it again",
         name, total, source.limit());
  }
  file.values.resize(total);
  if (const std::size_t found = source.read(file.values); found != total) {
    fail(ExitStatus::bad_input,
         "{}: the header announces {} bytes, the file holds {} (truncated); fetch it again", name,
         total, found);
  }
  if (!source.at_end()) {
    fail(ExitStatus::bad_input,
         "{}: the file does not end after the {} bytes its header announces (damaged, or something "
         "was appended); fetch it again",
         name, total);
  }
  return file;
}

}  // namespace lockstep
