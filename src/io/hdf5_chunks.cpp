#include "hdf5_storage.hpp"
#include "hdf5_trees.hpp"

#include <algorithm>
#include <bit>

namespace lockstep::h5 {
namespace {

constexpr std::uint64_t max_chunks = std::uint64_t{1} << 24;
constexpr std::string_view what = "an index of chunks";

/// Collects the chunks of a dataset.
class ChunkList final {
 public:
  ChunkList(const Node& dataset, const ChunkIndex& index, const ChunkGrid& grid)
      : dataset_(dataset), input_(*dataset.input()), is_filtered_(index.is_filtered), grid_(grid) {
    for (std::size_t axis = 0; axis < grid_.count.size(); ++axis) axes_.push_back(axis);
    // An axis without limit is the slowest one of an array.
    const auto endless = std::ranges::find(grid_.max_count, undefined);
    if (endless == grid_.max_count.end()) return;
    const auto axis = endless - grid_.max_count.begin();
    std::rotate(axes_.begin(), axes_.begin() + axis, axes_.begin() + axis + 1);
  }

  [[nodiscard]] const Node& dataset() const noexcept { return dataset_; }
  [[nodiscard]] const Input& input() const noexcept { return input_; }
  [[nodiscard]] const ChunkGrid& grid() const noexcept { return grid_; }
  [[nodiscard]] bool is_filtered() const noexcept { return is_filtered_; }

  /// Counts the bytes of a block of the index.
  void take_block(std::uint64_t bytes) { blocks_.take(bytes); }

  std::vector<Chunk> take() {
    TakenBytes values(input_, "chunks");
    for (const Chunk& chunk : list_) values.take(chunk.bytes);
    std::ranges::sort(list_, {}, &Chunk::number);
    if (std::ranges::adjacent_find(list_, {}, &Chunk::number) != list_.end()) {
      input_.damaged("an index lists a chunk twice");
    }
    return std::move(list_);
  }

  void add(const Chunk& chunk) {
    // Also ends a tree that goes round.
    if (++added_ > max_chunks) {
      fail(ExitStatus::bad_input,
           "{} has more than {} chunks (that is the limit); write it again with larger ones",
           dataset_.name(), max_chunks);
    }
    // Others are left from a larger shape, or were never written.
    if (chunk.number < grid_.chunks && chunk.address != undefined) list_.push_back(chunk);
  }

  /// An element of a record or an array: the address, and size and filters of a filtered chunk.
  void add_entry(std::uint64_t number, Cursor entry) {
    Chunk chunk{.number = number, .address = entry.address(), .bytes = grid_.chunk_bytes};
    if (is_filtered_) {
      if (entry.left() < 5 || entry.left() > 12) input_.damaged(what);
      chunk.bytes = entry.number(entry.left() - 4);
      chunk.skipped_filters = static_cast<std::uint32_t>(entry.number(4));
    }
    add(chunk);
  }

  /// The number of the chunk at a place of an array, which is as large as the largest shape.
  [[nodiscard]] std::uint64_t number_in_array(std::uint64_t index) const {
    std::vector<std::uint64_t> places(axes_.size());
    for (std::size_t i = axes_.size(); i-- > 0;) {
      const std::uint64_t count = grid_.max_count[axes_[i]];
      places[axes_[i]] = i == 0 ? index : index % count;
      index /= count;
    }
    return number_at(places);
  }

  /// `undefined` outside of the shape.
  [[nodiscard]] std::uint64_t number_at(std::span<const std::uint64_t> places) const noexcept {
    std::uint64_t number = 0;
    for (std::size_t axis = 0; axis < places.size(); ++axis) {
      if (places[axis] >= grid_.count[axis]) return undefined;
      number = number * grid_.count[axis] + places[axis];
    }
    return number;
  }

 private:
  const Node& dataset_;
  const Input& input_;
  bool is_filtered_;
  const ChunkGrid& grid_;
  std::vector<std::size_t> axes_;  ///< of an array, the slowest first
  std::vector<Chunk> list_;
  TakenBytes blocks_{input_, what};
  std::uint64_t added_ = 0;
};

/// The number of the chunk that a key names by its place along each axis, in chunks or, with
/// `is_offset`, in elements.
std::uint64_t number_of(Cursor& cursor, const ChunkList& list, bool is_offset) {
  std::vector<std::uint64_t> places;
  for (const std::uint64_t extent : list.grid().extent) {
    places.push_back(is_offset ? cursor.number(8) / extent : cursor.number(8));
  }
  return list.number_at(places);
}

void read_tree_1(ChunkList& list, std::uint64_t address) {
  visit_chunk_entries(list.input(), address, list.grid().count.size(),
                      [&](Cursor key, std::uint64_t child) {
                        Chunk chunk{.address = child};
                        chunk.bytes = key.number(4);
                        chunk.skipped_filters = static_cast<std::uint32_t>(key.number(4));
                        chunk.number = number_of(key, list, true);
                        list.add(chunk);
                      });
}

void read_tree_2(ChunkList& list, std::uint64_t address) {
  const std::size_t place_bytes = 8 * list.grid().count.size();
  visit_records(list.input(), address,
                list.is_filtered() ? RecordType::filtered_chunk : RecordType::chunk,
                [&](Cursor record) {
                  if (record.left() < 8 + place_bytes) list.input().damaged(what);
                  const Cursor entry(list.input(), record.bytes(record.left() - place_bytes), what);
                  const std::uint64_t number = number_of(record, list, false);
                  list.add_entry(number, entry);
                });
}

/// All chunks, one after the other.
void read_implicit(ChunkList& list, std::uint64_t address) {
  const std::uint64_t bytes = list.grid().chunk_bytes;
  std::uint64_t count = 1;
  for (const std::uint64_t along : list.grid().max_count) {
    if (along == 0 || count > max_chunks / along) list.dataset().refuse("too many chunks");
    count *= along;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!list.input().holds(address, bytes)) list.input().damaged("a chunk lies beyond its end");
    list.add({.number = list.number_in_array(i), .address = address, .bytes = bytes});
    address += bytes;
  }
}

/// Elements of an array that are stored together.
struct Elements {
  std::size_t bytes;    ///< of one
  std::uint64_t first;  ///< place in the array
  std::uint64_t count;
};

void add_elements(ChunkList& list, Cursor& cursor, const Elements& elements) {
  for (std::uint64_t i = 0; i < elements.count; ++i) {
    const Cursor entry(list.input(), cursor.bytes(elements.bytes), what);
    list.add_entry(list.number_in_array(elements.first + i), entry);
  }
}

/// Opens the header of an array, and takes what both kinds have.
Cursor begin_array(const ChunkList& list, const Bytes& header) {
  Cursor cursor(list.input(), header, what);
  cursor.skip(4);
  cursor.expect(0);
  cursor.expect(list.is_filtered() ? 1 : 0);
  return cursor;
}

void read_fixed_array(ChunkList& list, std::uint64_t address) {
  const Input& input = list.input();
  const Bytes header = input.read_checked(address, 28, "FAHD");
  Cursor cursor = begin_array(list, header);
  const std::size_t bytes = cursor.byte();
  const std::uint8_t page_bits = cursor.byte();
  const std::uint64_t count = cursor.number(8);
  const std::uint64_t block_address = cursor.address();
  if (block_address == undefined) return;
  if (bytes < 8 || page_bits > 40 || !input.holds(0, count)) input.damaged(what);
  const std::uint64_t page = std::uint64_t{1} << page_bits;
  const std::uint64_t pages = count > page ? (count + page - 1) / page : 0;
  const std::uint64_t prefix = 4 + 1 + 1 + 8;
  const std::uint64_t bits = (pages + 7) / 8;
  const Bytes block = input.read_checked(
      block_address, prefix + bits + (pages > 0 ? 0 : count * bytes) + 4, "FADB");
  Cursor body(input, block, what);
  body.skip(prefix);
  const auto written = body.bytes(bits);
  if (pages == 0) add_elements(list, body, {.bytes = bytes, .first = 0, .count = count});
  // Each page has a checksum. Those that have never been written have no bit.
  std::uint64_t page_address = block_address + block.size();
  for (std::uint64_t i = 0; i < pages; ++i) {
    const Elements elements{
        .bytes = bytes, .first = i * page, .count = std::min(page, count - i * page)};
    if ((std::to_integer<unsigned>(written[i / 8]) << (i % 8) & 0x80) != 0) {
      const Bytes stored = input.read_checked(page_address, elements.count * bytes + 4, "");
      Cursor page_cursor(input, stored, what);
      add_elements(list, page_cursor, elements);
    }
    page_address += page * bytes + 4;
  }
}

/// An array that grows: an index block, then blocks of elements that double in size, whose
/// addresses are in the index block or, later, in secondary blocks.
class ExtensibleArray final {
 public:
  ExtensibleArray(ChunkList& list, std::uint64_t address) : list_(list), input_(list.input()) {
    const Bytes header = input_.read_checked(address, 72, "EAHD");
    Cursor cursor = begin_array(list, header);
    bytes_ = cursor.byte();
    max_bits_ = cursor.byte();
    in_index_ = cursor.byte();
    least_ = cursor.byte();
    least_pointers_ = cursor.byte();
    const std::uint8_t page_bits = cursor.byte();
    cursor.skip(32);  // numbers and sizes of blocks
    count_ = cursor.number(8);
    cursor.skip(8);  // elements in memory
    index_ = cursor.address();
    if (bytes_ < 8 || max_bits_ > 64 || !std::has_single_bit(least_) ||
        !std::has_single_bit(least_pointers_) || least_pointers_ < 2 || page_bits > 40) {
      input_.damaged(what);
    }
    page_ = std::uint64_t{1} << page_bits;
  }

  void read() {
    if (index_ == undefined || count_ == 0) return;
    const auto log2 = [](std::uint64_t value) {
      return static_cast<int>(std::bit_width(value)) - 1;
    };
    const int blocks = std::max(0, 1 + max_bits_ - log2(least_));
    const int direct_blocks = 2 * log2(least_pointers_);
    const std::uint64_t pointers =
        2 * (least_pointers_ - 1) + static_cast<std::uint64_t>(std::max(0, blocks - direct_blocks));
    const Bytes index =
        input_.read_checked(index_, 14 + in_index_ * bytes_ + 8 * pointers + 4, "EAIB");
    Cursor cursor(input_, index, what);
    cursor.skip(14);
    add_elements(list_, cursor, {.bytes = bytes_, .first = 0, .count = in_index_});
    std::uint64_t first = in_index_;
    for (int block = 0; block < blocks && first < count_; ++block) {
      const std::uint64_t data_blocks = std::uint64_t{1} << (block / 2);
      const std::uint64_t elements = least_ << ((block + 1) / 2);
      if (elements > page_) list_.dataset().refuse("more chunks than an array of one page lists");
      if (block < direct_blocks) {
        read_data_blocks(cursor, {.bytes = bytes_, .first = first, .count = elements}, data_blocks);
      } else if (const std::uint64_t address = cursor.address(); address != undefined) {
        const std::uint64_t prefix = 14 + offset_bytes();
        list_.take_block(prefix + 8 * data_blocks + 4);
        const Bytes secondary = input_.read_checked(address, prefix + 8 * data_blocks + 4, "EASB");
        Cursor pointers_of_block(input_, secondary, what);
        pointers_of_block.skip(prefix);
        read_data_blocks(pointers_of_block, {.bytes = bytes_, .first = first, .count = elements},
                         data_blocks);
      }
      first += data_blocks * elements;
    }
  }

 private:
  [[nodiscard]] std::uint64_t offset_bytes() const noexcept {
    return (static_cast<std::uint64_t>(max_bits_) + 7) / 8;
  }

  /// Blocks of `elements.count` each, whose addresses come next.
  void read_data_blocks(Cursor& pointers, Elements elements, std::uint64_t blocks) {
    for (std::uint64_t i = 0; i < blocks; ++i, elements.first += elements.count) {
      const std::uint64_t address = pointers.address();
      if (address == undefined) continue;
      const std::uint64_t prefix = 14 + offset_bytes();
      list_.take_block(prefix + elements.count * bytes_ + 4);
      const Bytes block =
          input_.read_checked(address, prefix + elements.count * bytes_ + 4, "EADB");
      Cursor cursor(input_, block, what);
      cursor.skip(prefix);
      add_elements(list_, cursor, elements);
    }
  }

  ChunkList& list_;
  const Input& input_;
  std::size_t bytes_ = 0;
  int max_bits_ = 0;
  std::uint64_t in_index_ = 0;  ///< elements in the index block
  std::uint64_t least_ = 0;     ///< elements of the smallest block
  std::uint64_t least_pointers_ = 0;
  std::uint64_t page_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t index_ = undefined;
};

}  // namespace

std::vector<Chunk> read_chunks(const Node& dataset, const ChunkIndex& index,
                               const ChunkGrid& grid) {
  ChunkList list(dataset, index, grid);
  if (index.address == undefined) return {};
  switch (index.kind) {
    case ChunkIndex::Kind::tree_1:
      read_tree_1(list, index.address);
      break;
    case ChunkIndex::Kind::single:
      list.add({.number = 0,
                .address = index.address,
                .bytes = index.single.bytes,
                .skipped_filters = index.single.skipped_filters});
      break;
    case ChunkIndex::Kind::implicit:
      read_implicit(list, index.address);
      break;
    case ChunkIndex::Kind::fixed_array:
      read_fixed_array(list, index.address);
      break;
    case ChunkIndex::Kind::extensible_array:
      ExtensibleArray(list, index.address).read();
      break;
    case ChunkIndex::Kind::tree_2:
      read_tree_2(list, index.address);
      break;
  }
  return list.take();
}

}  // namespace lockstep::h5
