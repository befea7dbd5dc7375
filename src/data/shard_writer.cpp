#include "shard_writer.hpp"

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/hdf5_writer.hpp"
#include "shard_header.hpp"

#include <sys/mman.h>
#include <sys/stat.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
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

/// The datasets of a shard, in the order in which they are made.
struct Datasets {
  h5::Dataset images;
  h5::Dataset offsets;  ///< none without encoded images
  h5::Dataset labels;
  h5::Dataset checksums;
};

/// `dims`: of /images, or of /encoded.
Datasets create_datasets(const h5::File& file, std::span<const std::uint64_t> dims, bool encoded,
                         std::uint64_t samples) {
  const std::array rows{samples};
  const std::array ends{samples + 1};
  Datasets made;
  made.images = h5::create_dataset<std::uint8_t>(file, encoded ? "encoded" : "images", dims);
  if (encoded) made.offsets = h5::create_dataset<std::uint64_t>(file, "offsets", ends);
  made.labels = h5::create_dataset<std::int64_t>(file, "labels", rows);
  made.checksums = h5::create_dataset<std::uint32_t>(file, "crc32c", rows);
  return made;
}

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

/// Bytes of a file that are not values of its datasets.
std::vector<Range> metadata_of(const h5::Object& file, bool encoded, std::uint64_t file_bytes) {
  std::vector<Range> values;
  for (const char* name : {encoded ? "encoded" : "images", "offsets", "labels", "crc32c"}) {
    if (!h5::exists(file, name)) continue;
    const h5::DatasetInfo info = h5::describe(file, name);
    const std::uint64_t begin = info.offset.value_or(0);
    values.push_back({begin, begin + info.elements * info.element.size});
  }
  std::ranges::sort(values, {}, &Range::begin);
  std::vector<Range> metadata;
  std::uint64_t begin = 0;
  for (const Range& range : values) {
    if (range.begin > begin) metadata.push_back({begin, range.begin});
    begin = std::max(begin, range.end);
  }
  if (begin < file_bytes) metadata.push_back({begin, file_bytes});
  return metadata;
}

/// Whether all of a shard but its values is as ShardWriter::close() writes it.
bool has_own_structure(const Descriptor& shard) {
  const auto path_of = [](const Descriptor& file) {
    return fmt::format("/proc/self/fd/{}", file.get());
  };
  const auto size_of = [](const Descriptor& file) {
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) fail(ExitStatus::internal, "{}", std::strerror(errno));
    return static_cast<std::uint64_t>(status.st_size);
  };
  const h5::Object found = h5::open_file(path_of(shard));
  const bool encoded = h5::exists(found, "encoded");
  const std::vector<std::uint64_t> dims = h5::describe(found, encoded ? "encoded" : "images").dims;
  const std::uint64_t samples = h5::describe(found, "labels").elements;
  const Descriptor skeleton(::memfd_create("shard", MFD_CLOEXEC));
  if (!skeleton) {
    fail(ExitStatus::internal, "no memory for a file's metadata ({}); try again",
         std::strerror(errno));
  }
  h5::File file = h5::create_file("a file in memory", skeleton);
  static_cast<void>(create_datasets(file, dims, encoded, samples));
  h5::close_written(std::move(file));
  const std::uint64_t bytes = size_of(skeleton);
  if (size_of(shard) != bytes) return false;
  const auto metadata = metadata_of(h5::open_file(path_of(skeleton)), encoded, bytes);
  return std::ranges::all_of(metadata, [&](const Range& range) {
    std::vector<std::byte> expected(range.end - range.begin);
    std::vector<std::byte> stored(expected.size());
    return read_at(skeleton, range.begin, expected) == expected.size() &&
           read_at(shard, range.begin, stored) == stored.size() && stored == expected;
  });
}

}  // namespace

SpoolFile::SpoolFile(const FilePath& file) {
  const TemporaryFile named(file);
  path_ = named.path();
  file_ = Descriptor(::fcntl(named.file().get(), F_DUPFD_CLOEXEC, 0));
  if (!file_) {
    fail(ExitStatus::cannot_write, "cannot open {} again ({}); raise the limit of open files",
         path_, std::strerror(errno));
  }
}

void SpoolFile::append(std::span<const std::byte> bytes) {
  const int error = write_all(file_, bytes);
  if (error == 0) return;
  fail(ExitStatus::cannot_write, "cannot write {} ({}); check that the disk is not full", path_,
       std::strerror(error));
}

void SpoolFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  const auto count = read_at(file_, offset, bytes);
  if (count && *count == bytes.size()) return;
  fail(ExitStatus::internal, "cannot read {} back ({}); check the disk", path_,
       count ? "it is shorter than what was written" : std::strerror(errno));
}

ShardWriter::ShardWriter(const TemporaryFile& file, const SourceInfo& info)
    : file_(file), image_(info.image), encoded_(info.encoded), spool_(file.target()) {}

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
  h5::File file = h5::create_file(file_.path(), file_.file());
  const std::uint64_t samples = labels_.size();
  std::vector<std::uint64_t> dims{offsets_.back()};
  if (!encoded_) {
    dims = {samples, static_cast<std::uint64_t>(image_.height),
            static_cast<std::uint64_t>(image_.width), static_cast<std::uint64_t>(image_.channels)};
  }
  const Datasets datasets = create_datasets(file, dims, encoded_, samples);
  copy_rows(spool_, datasets.images, dims[0], encoded_ ? 1 : dims[1] * dims[2] * dims[3]);
  if (encoded_) h5::write_rows<std::uint64_t>(datasets.offsets, 0, samples + 1, offsets_);
  h5::write_rows<std::int64_t>(datasets.labels, 0, samples, labels_);
  h5::write_rows<std::uint32_t>(datasets.checksums, 0, samples, checksums_);
  h5::close_written(std::move(file));
}

bool is_unfinished_shard(const Descriptor& file) {
  try {
    return has_own_structure(file);
  } catch (const Error& error) {
    if (error.status() != ExitStatus::bad_input) throw;
    return false;
  }
}

void finish_shard(const TemporaryFile& shard, const ShardAttributes& attributes) {
  if (!is_unfinished_shard(shard.file())) {
    fail(
        ExitStatus::bad_input,
        "{} was not written by this packing (its HDF5 structure differs); pack to another --output",
        shard.path());
  }
  h5::File file = h5::open_for_update(shard.path(), shard.file());
  h5::write_string(file, "format", "lockstep-shard");
  h5::write_number<std::int64_t>(file, "version", 1);
  h5::write_number(file, "classes", attributes.classes);
  if (!attributes.class_names.empty()) {
    h5::write_strings(file, "class_names", attributes.class_names);
  }
  h5::write_floats(file, "mean", attributes.mean);
  h5::write_floats(file, "std", attributes.std);
  if (attributes.short_side > 0) h5::write_number(file, "short_side", attributes.short_side);
  h5::close_written(std::move(file));
}

}  // namespace lockstep
