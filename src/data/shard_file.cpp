#include "lockstep/data/shard_file.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/data/decode.hpp"
#include "shard_header.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {
namespace {

/// Rows per piece while scanning: a few hundred KiB.
constexpr std::int64_t scan_rows = std::int64_t{1} << 15;

void read_exactly(const Descriptor& descriptor, std::uint64_t offset, std::span<std::byte> bytes,
                  const std::string& path) {
  const auto count = read_at(descriptor, offset, bytes);
  if (!count) {
    fail(status_of_read_failure(errno), "cannot read {} at byte {} ({}); check its file system",
         path, offset, std::strerror(errno));
  }
  if (*count < bytes.size()) {
    fail(ExitStatus::bad_input,
         "{} ends before byte {} (it was truncated since it was opened); copy it again", path,
         offset + bytes.size());
  }
}

/// Decodes an integer as stored in the file. Unsigned values of 2^63 and above become negative.
std::int64_t decode_integer(const std::byte* bytes, const ShardColumn& column) {
  std::uint64_t value = 0;
  const std::int32_t size = column.element_size;
  for (std::int32_t i = 0; i < size; ++i) {
    const std::byte byte = bytes[column.little_endian ? size - 1 - i : i];
    value = (value << 8) | std::to_integer<std::uint64_t>(byte);
  }
  const int unused = 64 - 8 * size;
  if (column.is_signed) return static_cast<std::int64_t>(value << unused) >> unused;
  return static_cast<std::int64_t>(value);
}

/// Cache of a shard's labels, checksums or offsets, read on demand in blocks of some hundreds, so a
/// sample usually costs one file access instead of one per column. Thread-safe.
class ColumnBlocks final {
 public:
  explicit ColumnBlocks(std::int64_t rows)
      : rows_(rows), blocks_(static_cast<std::size_t>((rows + size - 1) / size)) {}
  ColumnBlocks(const ColumnBlocks&) = delete;
  ColumnBlocks& operator=(const ColumnBlocks&) = delete;
  ~ColumnBlocks() {
    for (const auto& block : blocks_) delete[] block.load(std::memory_order_relaxed);
  }

  /// Calls `read(first, values)` to fill a missing block; passes its exceptions on.
  template <typename Read>
  [[nodiscard]] std::int64_t at(std::int64_t row, Read&& read) {
    std::atomic<const std::int64_t*>& block = blocks_[static_cast<std::size_t>(row / size)];
    const std::int64_t* values = block.load(std::memory_order_acquire);
    if (values == nullptr) {
      const std::int64_t first = row / size * size;
      const auto count = static_cast<std::size_t>(std::min(size, rows_ - first));
      std::unique_ptr<std::int64_t[]> fresh(new std::int64_t[count]);
      read(first, std::span(fresh.get(), count));
      // If two threads read the same block, the first one stores it.
      if (block.compare_exchange_strong(values, fresh.get(), std::memory_order_acq_rel)) {
        values = fresh.release();
      }
    }
    return values[row % size];
  }

 private:
  static constexpr std::int64_t size = 512;
  std::int64_t rows_;
  std::vector<std::atomic<const std::int64_t*>> blocks_;
};

void note_label(std::int64_t label, ShardContents& contents) {
  contents.smallest_label = std::min(contents.smallest_label, label);
  contents.largest_label = std::max(contents.largest_label, label);
  if (label >= most_counted_classes) return;
  const auto index = static_cast<std::size_t>(label);
  if (index >= contents.has_samples.size()) contents.has_samples.resize(index + 1);
  contents.has_samples[index] = true;
}

}  // namespace

struct ShardFile::Implementation {
  std::string path;
  Descriptor descriptor;
  ShardHeader header;
  // Open only if a column is not contiguous.
  h5::Object file;
  h5::Object images;
  h5::Object labels;
  h5::Object offsets;
  h5::Object checksums;
  // Caches for read().
  std::optional<ColumnBlocks> label_blocks;
  std::optional<ColumnBlocks> offset_blocks;
  std::optional<ColumnBlocks> checksum_blocks;

  void make_blocks() {
    label_blocks.emplace(header.samples);
    offset_blocks.emplace(header.offsets ? header.samples + 1 : 0);
    checksum_blocks.emplace(header.checksums ? header.samples : 0);
  }
  void open_columns() {
    if (header.contiguous || header.samples == 0) return;
    if (!file) file = h5::open_file(path);
    images = h5::open_dataset(file, header.encoded ? "encoded" : "images");
    labels = h5::open_dataset(file, "labels");
    if (header.offsets) offsets = h5::open_dataset(file, "offsets");
    if (header.checksums) checksums = h5::open_dataset(file, "crc32c");
  }

  /// Integers of rows [first, first + values.size()).
  void read_integers(const ShardColumn& column, const h5::Object& dataset, std::int64_t first,
                     std::span<std::int64_t> values) const {
    if (!column.offset) {
      h5::read_rows<std::int64_t>(dataset, static_cast<std::uint64_t>(first), values.size(),
                                  values);
      return;
    }
    // Read the file's integers, which are at most as wide, into the end of `values` and widen them
    // from the front: each write overwrites only integers already decoded.
    const auto size = static_cast<std::size_t>(column.element_size);
    const std::span<std::byte> all = std::as_writable_bytes(values);
    const std::span<std::byte> raw = all.last(values.size() * size);
    read_exactly(descriptor,
                 *column.offset + static_cast<std::uint64_t>(first) * column.element_size, raw,
                 path);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = decode_integer(raw.data() + i * size, column);
    }
  }

  std::int64_t integer(ColumnBlocks& blocks, const ShardColumn& column, const h5::Object& dataset,
                       std::int64_t row) const {
    return blocks.at(row, [&](std::int64_t first, std::span<std::int64_t> values) {
      read_integers(column, dataset, first, values);
    });
  }

  void read_bytes(std::int64_t offset, std::span<std::byte> bytes) const {
    if (header.images.offset) {
      read_exactly(descriptor, *header.images.offset + static_cast<std::uint64_t>(offset), bytes,
                   path);
      return;
    }
    const std::span<std::uint8_t> values(reinterpret_cast<std::uint8_t*>(bytes.data()),
                                         bytes.size());
    if (header.encoded) {
      h5::read_rows<std::uint8_t>(images, static_cast<std::uint64_t>(offset), bytes.size(), values);
    } else {
      h5::read_rows<std::uint8_t>(images, static_cast<std::uint64_t>(offset) / bytes.size(), 1,
                                  values);
    }
  }

  void check_label(std::int64_t label, std::int64_t sample) const {
    const std::int64_t end = header.classes.value_or(std::int64_t{1} << 31);
    if (label >= 0 && label < end) return;
    fail(ExitStatus::bad_input,
         "{}: sample {} has label {} (labels must be in [0, {})); fix /labels or the attribute "
         "classes",
         path, sample, label, end);
  }

  /// Turns the checksums of samples into those of the same images with renumbered labels. Checks
  /// the labels, which are read a second time.
  void renumber(const ClassNumbering& numbering, std::int64_t first,
                std::span<std::int64_t> values) const {
    std::vector<std::int64_t> stored(values.size());
    read_integers(header.labels, labels, first, stored);
    for (std::size_t i = 0; i < stored.size(); ++i) {
      check_label(stored[i], first + static_cast<std::int64_t>(i));
      values[i] ^= checksum_change(stored[i], numbering[static_cast<std::size_t>(stored[i])]);
    }
  }

  void check_sample_end(std::int64_t begin, std::int64_t end, std::int64_t sample) const {
    if (begin >= 0 && begin < end && end <= header.encoded_bytes && end - begin <= max_sample_bytes)
      return;
    fail(
        ExitStatus::bad_input,
        "{}: sample {} takes bytes {} to {} of /encoded (offsets must rise, by at most {}, and end "
        "by {}); write it again",
        path, sample, begin, end, max_sample_bytes, header.encoded_bytes);
  }
};

ShardFile::ShardFile(const std::string& path) : implementation_(new Implementation) {
  Implementation& self = *implementation_;
  self.path = path;
  self.descriptor = open_input(path, "check that it exists and is readable");
  const std::uint64_t bytes = size_of(self.descriptor, path, "check that it is readable");
  self.file = h5::open_file(path);
  self.header = read_shard_header(self.file, path, bytes);
  self.open_columns();
  self.make_blocks();
  if (self.header.contiguous) self.file = {};
}

ShardFile::ShardFile(const std::string& path, ShardHeader header)
    : implementation_(new Implementation) {
  Implementation& self = *implementation_;
  self.path = path;
  self.header = std::move(header);
  self.descriptor = open_input(path, "check that it exists and is readable");
  check_columns(self.header, path, size_of(self.descriptor, path, "check that it is readable"));
  self.open_columns();
  self.make_blocks();
}

ShardFile::~ShardFile() = default;

const ShardHeader& ShardFile::header() const noexcept {
  return implementation_->header;
}

ShardContents ShardFile::scan(const ClassNumbering& numbering) const {
  const Implementation& self = *implementation_;
  const ShardHeader& header = self.header;
  ShardContents contents;
  if (header.samples == 0) return contents;
  if (!numbering.empty() && header.classes != static_cast<std::int64_t>(numbering.size())) {
    fail(ExitStatus::bad_input,
         "{} has other classes than {} when it was opened before (something writes to it); start "
         "again when it is complete",
         self.path, numbering.size());
  }
  std::vector<std::int64_t> values(
      static_cast<std::size_t>(std::min(header.samples + 1, scan_rows)));
  // Passes each piece of `column` to `check`, which may change it, and adds it to the checksum.
  const auto for_pieces = [&](const ShardColumn& column, const h5::Object& dataset,
                              std::int64_t rows, const auto& check) {
    for (std::int64_t first = 0; first < rows; first += scan_rows) {
      const auto count = static_cast<std::size_t>(std::min(scan_rows, rows - first));
      const auto piece = std::span(values).first(count);
      self.read_integers(column, dataset, first, piece);
      check(first, piece);
      contents.checksum = crc32c(std::as_bytes(piece), contents.checksum);
    }
  };
  contents.smallest_label = std::int64_t{1} << 31;
  for_pieces(header.labels, self.labels, header.samples,
             [&](std::int64_t first, std::span<std::int64_t> labels) {
               for (std::int64_t& label : labels) {
                 self.check_label(label, first++);
                 note_label(label, contents);
                 if (!numbering.empty()) label = numbering[static_cast<std::size_t>(label)];
               }
             });
  if (header.offsets) {
    std::int64_t previous = 0;
    for_pieces(*header.offsets, self.offsets, header.samples + 1,
               [&](std::int64_t row, std::span<std::int64_t> offsets) {
                 for (const std::int64_t offset : offsets) {
                   if (row > 0) self.check_sample_end(previous, offset, row - 1);
                   previous = offset;
                   ++row;
                 }
               });
  }
  if (header.checksums) {
    for_pieces(*header.checksums, self.checksums, header.samples,
               [&](std::int64_t first, std::span<std::int64_t> checksums) {
                 if (!numbering.empty()) self.renumber(numbering, first, checksums);
               });
  }
  return contents;
}

void ShardFile::keep_chunks() const {
  constexpr std::uint64_t most_bytes = std::uint64_t{256} << 20;
  if (implementation_->images) h5::keep_chunks(implementation_->images, most_bytes);
}

void ShardFile::read(std::int64_t index, RawSample& sample) const {
  Implementation& self = *implementation_;
  const ShardHeader& header = self.header;
  sample.label = self.integer(*self.label_blocks, header.labels, self.labels, index);
  if (header.encoded) {
    const auto offset = [&](std::int64_t row) {
      return self.integer(*self.offset_blocks, *header.offsets, self.offsets, row);
    };
    const std::int64_t begin = offset(index);
    const std::int64_t end = offset(index + 1);
    self.check_sample_end(begin, end, index);
    sample.bytes.resize(static_cast<std::size_t>(end - begin));
    self.read_bytes(begin, sample.bytes);
  } else {
    const std::int64_t bytes = header.image.height * header.image.width * header.image.channels;
    sample.bytes.resize(static_cast<std::size_t>(bytes));
    self.read_bytes(index * bytes, sample.bytes);
  }
  if (header.checksums) {
    const std::int64_t expected =
        self.integer(*self.checksum_blocks, *header.checksums, self.checksums, index);
    const std::uint32_t found = checksum_of(sample);
    if (found != static_cast<std::uint32_t>(expected)) {
      fail(
          ExitStatus::bad_input,
          "{}: sample {} has checksum {:08x}, not {:08x} (its bytes changed since it was written); "
          "copy the file again",
          self.path, index, found, static_cast<std::uint32_t>(expected));
    }
  }
  // After the checksum, whose error says more. Also catches a file changed after validation.
  self.check_label(sample.label, index);
}

ShardHeader verify_shard(const std::string& path) {
  const ShardFile shard(path);
  shard.keep_chunks();
  static_cast<void>(shard.scan());
  const ShardHeader& header = shard.header();
  RawSample sample;
  Image image;
  for (std::int64_t i = 0; i < header.samples; ++i) {
    shard.read(i, sample);
    if (!header.encoded) continue;
    try {
      decode_jpeg(sample.bytes, header.image.channels == 1 ? 1 : 3, image);
    } catch (const Error& error) {
      fail(error.status(), "{}: sample {}: {}", path, i, error.what());
    }
  }
  return header;
}

}  // namespace lockstep
