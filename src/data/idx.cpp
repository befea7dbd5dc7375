#include "lockstep/data/idx.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/data/pack_source.hpp"
#include "pack_file.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <filesystem>
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

namespace fs = std::filesystem;

/// NAME, or else NAME.gz; nullopt if neither exists. Some copies have "images.idx3" for
/// "images-idx3".
std::optional<std::string> find_file(const std::string& directory, const std::string& name) {
  std::string dotted = name;
  dotted[dotted.find("-idx")] = '.';
  for (const std::string& candidate : {name, name + ".gz", dotted, dotted + ".gz"}) {
    const fs::path path = fs::path(directory) / candidate;
    if (is_there(path.string())) return path.string();
  }
  return std::nullopt;
}

std::string require_file(const std::string& directory, const std::string& name) {
  if (auto path = find_file(directory, name)) return *path;
  fail(ExitStatus::no_input,
       "{} holds neither {} nor {}.gz (--from mnist reads MNIST's four files); check --input",
       directory, name, name);
}

IdxFile read_idx(const std::string& path, std::size_t axes) {
  IdxFile file = parse_idx(read_whole_file(path), path);
  if (file.dims.size() != axes) {
    fail(ExitStatus::bad_input,
         "{} has {} axes, expected {} (it holds something else); check --input", path,
         file.dims.size(), axes);
  }
  return file;
}

struct LoadedPart {
  std::int64_t height = 0;
  std::int64_t width = 0;
  PixelPart pixels;
  std::vector<std::string> files;
};

LoadedPart load_part(const std::string& directory, const std::string& prefix) {
  const std::string image_path = require_file(directory, prefix + "-images-idx3-ubyte");
  const std::string label_path = require_file(directory, prefix + "-labels-idx1-ubyte");
  IdxFile images = read_idx(image_path, 3);
  const IdxFile labels = read_idx(label_path, 1);
  if (images.dims[0] != labels.dims[0]) {
    fail(ExitStatus::bad_input,
         "{} holds {} images, but {} holds {} labels (they must be equal); get both files again",
         image_path, images.dims[0], label_path, labels.dims[0]);
  }
  if (images.dims[0] == 0 || images.dims[1] == 0 || images.dims[2] == 0) {
    fail(ExitStatus::bad_input, "{} has {} images of {}x{} pixels (nothing to pack); check --input",
         image_path, images.dims[0], images.dims[1], images.dims[2]);
  }
  LoadedPart part{.height = images.dims[1],
                  .width = images.dims[2],
                  .pixels = {},
                  .files = {image_path, label_path}};
  part.pixels.images = std::move(images.values);
  part.pixels.labels.reserve(labels.values.size());
  for (const std::byte label : labels.values) {
    part.pixels.labels.push_back(std::to_integer<std::uint8_t>(label));
  }
  return part;
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

std::unique_ptr<PackSource> open_mnist_source(const std::string& directory) {
  LoadedPart train = load_part(directory, "train");
  LoadedPart val;
  if (find_file(directory, "t10k-images-idx3-ubyte") ||
      find_file(directory, "t10k-labels-idx1-ubyte")) {
    val = load_part(directory, "t10k");
    if (val.height != train.height || val.width != train.width) {
      fail(ExitStatus::bad_input,
           "{}: the test images are {}x{} pixels, the training images {}x{} (they must be equal); "
           "check --input",
           directory, val.height, val.width, train.height, train.width);
    }
  }
  std::int64_t classes = 0;
  for (const PixelPart* part : {&train.pixels, &val.pixels}) {
    for (const std::uint8_t label : part->labels) {
      classes = std::max<std::int64_t>(classes, label + 1);
    }
  }
  std::vector<std::string> files = train.files;
  files.insert(files.end(), val.files.begin(), val.files.end());
  SourceInfo info{.image = {.channels = 1, .height = train.height, .width = train.width},
                  .encoded = false,
                  .classes = classes,
                  .class_names = {},
                  .fates = entries_beside(directory, files)};
  for (std::int64_t i = 0; i < classes; ++i) info.class_names.push_back(std::to_string(i));
  return make_pixel_source(std::move(info), std::move(train.pixels), std::move(val.pixels));
}

}  // namespace lockstep
