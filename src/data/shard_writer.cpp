#include "shard_writer.hpp"

#include "lockstep/io/hdf5_writer.hpp"
#include "shard_header.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t flush_bytes = std::size_t{4} << 20;

/// Copies the rows of `dataset`, each of `row_bytes`, from the spool file.
void copy_rows(const SpoolFile& spool, const h5::Dataset& dataset, std::uint64_t rows,
               std::size_t row_bytes) {
  const std::uint64_t rows_at_once = std::max<std::uint64_t>(1, flush_bytes / row_bytes);
  std::vector<std::uint8_t> buffer;
  for (std::uint64_t first = 0; first < rows; first += rows_at_once) {
    const std::uint64_t count = std::min(rows_at_once, rows - first);
    buffer.resize(count * row_bytes);
    spool.read(first * row_bytes, std::as_writable_bytes(std::span(buffer)));
    h5::write_rows<std::uint8_t>(dataset, first, count, buffer);
  }
}

}  // namespace

ShardWriter::ShardWriter(const std::string& path, const SourceInfo& info)
    : path_(path), image_(info.image), encoded_(info.encoded), spool_(path + "-samples") {}

void ShardWriter::append(const RawSample& sample) {
  buffer_.insert(buffer_.end(), sample.bytes.begin(), sample.bytes.end());
  offsets_.push_back(offsets_.back() + sample.bytes.size());
  labels_.push_back(sample.label);
  checksums_.push_back(checksum_of(sample));
  if (buffer_.size() >= flush_bytes) flush();
}

void ShardWriter::flush() {
  spool_.append(buffer_);
  buffer_.clear();
}

void ShardWriter::close() {
  flush();
  h5::File file = h5::create_file(path_);
  const std::array rows{static_cast<std::uint64_t>(labels_.size())};
  if (encoded_) {
    const std::array bytes{offsets_.back()};
    const h5::Dataset images = h5::create_dataset<std::uint8_t>(file, "encoded", bytes);
    const std::array ends{rows[0] + 1};
    h5::write_dataset<std::uint64_t>(file, "offsets", ends, offsets_);
    copy_rows(spool_, images, bytes[0], 1);
  } else {
    const std::array dims{rows[0], static_cast<std::uint64_t>(image_.height),
                          static_cast<std::uint64_t>(image_.width),
                          static_cast<std::uint64_t>(image_.channels)};
    const h5::Dataset images = h5::create_dataset<std::uint8_t>(file, "images", dims);
    copy_rows(spool_, images, rows[0], dims[1] * dims[2] * dims[3]);
  }
  h5::write_dataset<std::int64_t>(file, "labels", rows, labels_);
  h5::write_dataset<std::uint32_t>(file, "crc32c", rows, checksums_);
  h5::close_written(std::move(file));
}

void finish_shard(const std::string& path, const ShardAttributes& attributes) {
  h5::File file = h5::open_for_update(path);
  h5::write_string(file, "format", "lockstep-shard");
  h5::write_int64(file, "version", 1);
  h5::write_int64(file, "classes", attributes.classes);
  if (!attributes.class_names.empty()) {
    h5::write_strings(file, "class_names", attributes.class_names);
  }
  h5::write_floats(file, "mean", attributes.mean);
  h5::write_floats(file, "std", attributes.std);
  if (attributes.short_side > 0) h5::write_int64(file, "short_side", attributes.short_side);
  h5::close_written(std::move(file));
}

}  // namespace lockstep
