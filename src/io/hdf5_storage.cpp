#include "hdf5_storage.hpp"

#include "hdf5_types.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace lockstep::h5 {
namespace {

/// The best ratio of deflate, the only filter that compresses.
constexpr std::uint64_t best_compression = 1032;
/// Chunks are decoded as a whole.
constexpr std::uint64_t max_chunk_bytes = std::uint64_t{1} << 31;

enum Filter : std::uint16_t { deflate = 1, shuffle = 2, fletcher32 = 3 };

std::string name_of_filter(std::uint16_t number) {
  switch (number) {
    case deflate:
      return "deflate";
    case shuffle:
      return "shuffle";
    case fletcher32:
      return "fletcher32";
    default:
      return {};
  }
}

[[noreturn]] void damaged_chunk(const std::string& object, std::string_view why) {
  fail(ExitStatus::bad_input, "a chunk of {} is damaged ({}); copy or write the file again", object,
       why);
}

/// Inflates into memory of `count` bytes, which may not be all used.
Bytes inflated(const Bytes& stored, std::uint64_t count, const std::string& object) {
  Bytes values(static_cast<std::size_t>(count));
  auto length = static_cast<uLongf>(values.size());
  const int status =
      uncompress(reinterpret_cast<Bytef*>(values.data()), &length,
                 reinterpret_cast<const Bytef*>(stored.data()), static_cast<uLong>(stored.size()));
  if (status != Z_OK) {
    damaged_chunk(object, status == Z_BUF_ERROR ? "it has another size" : "it does not inflate");
  }
  values.resize(length);
  return values;
}

/// The filter stores the first bytes of all elements, then the second ones, and so on.
Bytes unshuffled(const Bytes& stored, std::size_t element_bytes) {
  const std::size_t elements = stored.size() / element_bytes;
  Bytes values = stored;  // what is left over stays at the end
  for (std::size_t byte = 0; byte < element_bytes; ++byte) {
    const std::byte* from = stored.data() + byte * elements;
    for (std::size_t i = 0; i < elements; ++i) values[i * element_bytes + byte] = from[i];
  }
  return values;
}

/// Fletcher's checksum over big-endian 16-bit words; an odd last byte is the upper half of one.
std::uint32_t fletcher(std::span<const std::byte> bytes) noexcept {
  std::uint64_t sum = 0;
  std::uint64_t sum_of_sums = 0;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    const auto high = std::to_integer<std::uint32_t>(bytes[i]);
    const auto low = i + 1 < bytes.size() ? std::to_integer<std::uint32_t>(bytes[i + 1]) : 0U;
    sum = (sum + (high << 8 | low)) % 65535;
    sum_of_sums = (sum_of_sums + sum) % 65535;
  }
  return static_cast<std::uint32_t>(sum_of_sums << 16 | sum);
}

/// The writer's sums are between 1 and 65535 where ours are between 0 and 65534.
bool equals_fletcher(std::uint32_t stored, std::uint32_t found) noexcept {
  return (stored & 0xFFFF) % 65535 == (found & 0xFFFF) && (stored >> 16) % 65535 == found >> 16;
}

void check_fletcher(Bytes& stored, const std::string& object) {
  std::uint32_t sum = 0;
  if (stored.size() < sizeof(sum)) damaged_chunk(object, "its checksum is missing");
  const std::size_t size = stored.size() - sizeof(sum);
  std::memcpy(&sum, stored.data() + size, sizeof(sum));
  stored.resize(size);
  if (!equals_fletcher(sum, fletcher(stored))) damaged_chunk(object, "its checksum does not match");
}

/// A chunk's values before the filters. `object` is for messages.
Bytes undo_filters(Bytes stored, std::span<const std::uint16_t> filters, std::uint32_t skipped,
                   std::size_t element_bytes, std::uint64_t chunk_bytes,
                   const std::string& object) {
  constexpr std::uint64_t checksum_bytes = 4;
  for (std::size_t i = filters.size(); i-- > 0;) {
    if ((skipped >> i & 1) != 0) continue;
    if (filters[i] == deflate) {
      // A checksum may have been added before.
      stored = inflated(stored, chunk_bytes + checksum_bytes, object);
    } else if (filters[i] == shuffle) {
      stored = unshuffled(stored, element_bytes);
    } else {
      check_fletcher(stored, object);
    }
  }
  if (stored.size() != chunk_bytes) damaged_chunk(object, "it has another size");
  return stored;
}

}  // namespace

Storage::Storage(const Node& dataset) : node_(dataset) {
  Extent extent = parse_dataspace(node_.require(MessageType::dataspace, "shape"), node_.name());
  info_.element = parse_datatype(node_.require(MessageType::datatype, "type")).element;
  if (node_.find(MessageType::external_files) != nullptr) node_.refuse("values in other files");
  if (extent.elements > (std::uint64_t{1} << 62) / std::max<std::uint64_t>(info_.element.size, 1)) {
    fail(ExitStatus::bad_input, "the size of {} overflows (more than 2^62 bytes); it is damaged",
         node_.name());
  }
  info_.dims = std::move(extent.dims);
  max_dims_ = std::move(extent.max_dims);
  info_.elements = extent.elements;
  read_filters();
  read_layout();
}

void Storage::read_filters() {
  if (node_.find(MessageType::filters) == nullptr) return;
  Cursor cursor = node_.require(MessageType::filters, "list of filters");
  const std::uint8_t version = cursor.byte();
  const std::uint8_t count = cursor.byte();
  if (version < 1 || version > 2 || count > 32) node_.refuse("filters of another format");
  if (version == 1) cursor.skip(6);
  for (std::uint8_t i = 0; i < count; ++i) {
    constexpr std::uint64_t first_registered = 256;
    const std::uint64_t number = cursor.number(2);
    const bool has_name = version == 1 || number >= first_registered;
    const std::uint64_t name_bytes = has_name ? cursor.number(2) : 0;
    cursor.skip(2);  // whether it is optional for a writer
    const std::uint64_t values = cursor.number(2);
    cursor.skip(version == 1 ? (name_bytes + 7) / 8 * 8 : name_bytes);
    cursor.skip(4 * (version == 1 ? (values + 1) / 2 * 2 : values));
    filters_.push_back(static_cast<std::uint16_t>(number));
    info_.filters.push_back(name_of_filter(filters_.back()));
    if (info_.filters.back().empty()) {
      node_.refuse(fmt::format("filter {} (deflate, shuffle and fletcher32 are read)", number));
    }
  }
}

void Storage::read_layout() {
  enum Class : std::uint8_t { compact_class, contiguous_class, chunked_class };
  Cursor cursor = node_.require(MessageType::layout, "layout");
  const std::uint8_t version = cursor.byte();
  if (version < 3 || version > 4) node_.refuse(fmt::format("version {} of the layout", version));
  switch (cursor.byte()) {
    case compact_class:
      info_.layout = Layout::compact;
      compact_ = cursor.bytes(cursor.number(2));
      break;
    case contiguous_class: {
      info_.layout = Layout::contiguous;
      const std::uint64_t address = cursor.address();
      if (address != undefined) info_.offset = node_.input()->base() + address;
      break;
    }
    case chunked_class:
      info_.layout = Layout::chunked;
      read_chunked_layout(cursor, version);
      break;
    default:
      node_.refuse("a virtual layout");
  }
  if (info_.layout != Layout::chunked && !filters_.empty()) node_.refuse("filters without chunks");
}

void Storage::read_chunked_layout(Cursor cursor, std::uint8_t version) {
  const std::uint64_t flags = version == 4 ? cursor.byte() : 0;
  const std::uint64_t axes = cursor.byte();  // and one of the bytes in an element
  if (axes < 2 || axes != info_.dims.size() + 1)
    node_.input()->damaged("chunks have other axes than values");
  index_.is_filtered = !filters_.empty();
  if (version == 3) index_.address = cursor.address();
  const std::uint64_t width = version == 4 ? cursor.byte() : 4;
  if (width < 1 || width > 8) node_.input()->damaged("the extent of a chunk");
  std::vector<std::uint64_t> extent;
  for (std::uint64_t axis = 0; axis + 1 < axes; ++axis) extent.push_back(cursor.number(width));
  cursor.skip(width);
  info_.chunk_rows = std::max<std::uint64_t>(1, extent.front());
  set_grid(std::move(extent));
  if (version == 3) return;
  constexpr std::uint64_t unfiltered_edges = 0x01;
  constexpr std::uint64_t filtered_single = 0x02;
  if ((flags & unfiltered_edges) != 0 && !filters_.empty()) {
    node_.refuse("edges without filters");
  }
  const std::uint8_t kind = cursor.byte();
  if (kind < 1 || kind > 5) node_.refuse(fmt::format("an index of chunks of type {}", kind));
  index_.kind = static_cast<ChunkIndex::Kind>(kind);
  index_.single.bytes = grid_.chunk_bytes;
  if (index_.kind == ChunkIndex::Kind::single && (flags & filtered_single) != 0) {
    index_.single.bytes = cursor.number(8);
    index_.single.skipped_filters = static_cast<std::uint32_t>(cursor.number(4));
  }
  constexpr std::array<std::size_t, 6> parameters{0, 0, 0, 1, 5, 6};
  cursor.skip(parameters[kind]);
  index_.address = cursor.address();
}

void Storage::set_grid(std::vector<std::uint64_t> extent) {
  grid_.extent = std::move(extent);
  grid_.chunk_bytes = info_.element.size;
  for (std::size_t axis = 0; axis < grid_.extent.size(); ++axis) {
    const std::uint64_t size = grid_.extent[axis];
    const std::uint64_t most = max_dims_[axis];
    if (size == 0) node_.input()->damaged("a chunk without values");
    if (most < info_.dims[axis]) node_.input()->damaged("a dataset is larger than it may be");
    grid_.max_count.push_back(most == undefined
                                  ? undefined
                                  : std::max<std::uint64_t>(1, most / size + (most % size != 0)));
    // The product of the counts is at most that of the shape, which does not overflow.
    grid_.count.push_back((info_.dims[axis] + size - 1) / size);
    grid_.chunks *= grid_.count.back();
    if (size > max_chunk_bytes || grid_.chunk_bytes * size > max_chunk_bytes) {
      node_.refuse(fmt::format("chunks of more than {} bytes", max_chunk_bytes));
    }
    grid_.chunk_bytes *= size;
  }
}

void Storage::require_values() const {
  const std::uint64_t bytes = info_.elements * info_.element.size;
  const std::uint64_t file_bytes = node_.input()->size();
  const bool is_there = info_.layout == Layout::compact ? bytes <= compact_.size()
                        : info_.layout == Layout::contiguous
                            ? bytes == 0 || (info_.offset && *info_.offset <= file_bytes &&
                                             bytes <= file_bytes - *info_.offset)
                            : bytes / best_compression <= file_bytes;
  if (is_there) return;
  fail(ExitStatus::bad_input,
       "{} is {}, which is not in the file ({} bytes); it is truncated or was never filled",
       node_.name(), to_string(info_), file_bytes);
}

const Chunk& Storage::find_chunk(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  if (!chunks_) chunks_ = read_chunks(node_, index_, grid_);
  const auto found = std::ranges::lower_bound(*chunks_, number, {}, &Chunk::number);
  if (found == chunks_->end() || found->number != number) {
    fail(ExitStatus::bad_input,
         "{} lacks chunk {} of {} (it was never written); write all of its values", node_.name(),
         number, grid_.chunks);
  }
  return *found;
}

void Storage::keep(std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  kept_bytes_ = bytes;
}

std::shared_ptr<const Bytes> Storage::chunk(std::uint64_t number) const {
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::ranges::find(decoded_, number, &Decoded::number);
    if (known != decoded_.end()) return known->values;
  }
  const Chunk& chunk = find_chunk(number);
  // Before memory is taken for what a damaged file claims.
  if (grid_.chunk_bytes / best_compression > chunk.bytes) {
    node_.input()->damaged(fmt::format("a chunk of {} bytes is too short", chunk.bytes));
  }
  auto values = std::make_shared<const Bytes>(
      undo_filters(node_.input()->read(chunk.address, chunk.bytes, "a chunk"), filters_,
                   chunk.skipped_filters, info_.element.size, grid_.chunk_bytes, node_.name()));
  const std::lock_guard lock(mutex_);
  decoded_.push_back({.number = number, .values = values});
  while (decoded_.size() > 1 && decoded_.size() * grid_.chunk_bytes > kept_bytes_) {
    decoded_.pop_front();
  }
  return values;
}

}  // namespace lockstep::h5
