#include "shard_writer.hpp"

#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"

#include <array>
#include <numeric>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t flush_bytes = std::size_t{4} << 20;

std::array<std::byte, 8> little_endian(std::int64_t value) {
  std::array<std::byte, 8> bytes{};
  auto rest = static_cast<std::uint64_t>(value);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(rest & 0xFFu);
    rest >>= 8;
  }
  return bytes;
}

h5::Dataset create_images(const h5::File& file, const SourceInfo& info,
                          std::span<const std::uint64_t> sizes) {
  if (info.encoded) {
    const std::array dims{std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0})};
    return h5::create_dataset<std::uint8_t>(file, "encoded", dims);
  }
  const std::array dims{static_cast<std::uint64_t>(sizes.size()),
                        static_cast<std::uint64_t>(info.image.height),
                        static_cast<std::uint64_t>(info.image.width),
                        static_cast<std::uint64_t>(info.image.channels)};
  return h5::create_dataset<std::uint8_t>(file, "images", dims);
}

}  // namespace

ShardWriter::ShardWriter(std::string path, const SourceInfo& info,
                         std::span<const std::uint64_t> sizes)
    : path_(std::move(path)),
      file_(h5::create_file(path_)),
      images_(create_images(file_, info, sizes)),
      sizes_(sizes.begin(), sizes.end()),
      row_bytes_(info.encoded ? 1
                              : static_cast<std::size_t>(info.image.height * info.image.width *
                                                         info.image.channels)) {
  if (!info.encoded) return;
  std::vector<std::uint64_t> offsets{0};
  for (const std::uint64_t size : sizes_) offsets.push_back(offsets.back() + size);
  const std::array dims{static_cast<std::uint64_t>(offsets.size())};
  h5::write_dataset<std::uint64_t>(file_, "offsets", dims, offsets);
}

void ShardWriter::append(const RawSample& sample) {
  const std::size_t index = labels_.size();
  if (sample.bytes.size() != sizes_[index]) {
    fail(ExitStatus::bad_input,
         "a sample has {} bytes, {} when the source was listed (it changed meanwhile); start again",
         sample.bytes.size(), sizes_[index]);
  }
  const auto* first = reinterpret_cast<const std::uint8_t*>(sample.bytes.data());
  buffer_.insert(buffer_.end(), first, first + sample.bytes.size());
  labels_.push_back(sample.label);
  checksums_.push_back(crc32c(little_endian(sample.label), crc32c(sample.bytes)));
  if (buffer_.size() >= flush_bytes) flush();
}

void ShardWriter::flush() {
  if (buffer_.empty()) return;
  const std::uint64_t rows = buffer_.size() / row_bytes_;
  h5::write_rows<std::uint8_t>(images_, rows_written_, rows, buffer_);
  rows_written_ += rows;
  buffer_.clear();
}

void ShardWriter::close() {
  flush();
  const std::array dims{static_cast<std::uint64_t>(labels_.size())};
  h5::write_dataset<std::int64_t>(file_, "labels", dims, labels_);
  h5::write_dataset<std::uint32_t>(file_, "crc32c", dims, checksums_);
  images_.reset();
  h5::close_written(std::move(file_));
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
  h5::close_written(std::move(file));
}

}  // namespace lockstep
