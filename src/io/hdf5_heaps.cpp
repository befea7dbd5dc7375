#include "hdf5_trees.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <optional>

namespace lockstep::h5 {
namespace {

/// A fractal heap: objects in blocks that double in size, row by row.
class FractalHeap final {
 public:
  FractalHeap(const Input& input, std::uint64_t address) : input_(input) {
    constexpr std::uint64_t header_bytes = 146;
    const Bytes header = input.read_checked(address, header_bytes, "FRHP");
    Cursor cursor(input, header, what);
    cursor.skip(4);
    cursor.expect(0);
    id_bytes_ = static_cast<std::size_t>(cursor.number(2));
    const bool is_filtered = cursor.number(2) != 0;
    has_checksums_ = (cursor.byte() & 0x02) != 0;
    max_object_ = cursor.number(4);
    cursor.skip(8);  // the next id of a huge object
    huge_tree_ = cursor.address();
    cursor.skip(80);  // statistics
    width_ = cursor.number(2);
    start_ = cursor.number(8);
    max_direct_ = cursor.number(8);
    heap_bits_ = cursor.number(2);
    cursor.skip(2);  // rows at the start
    root_ = cursor.address();
    root_rows_ = cursor.number(2);
    const bool is_sound = !is_filtered && id_bytes_ >= 7 && id_bytes_ <= 64 && width_ > 0 &&
                          width_ <= 1024 && std::has_single_bit(width_) &&
                          std::has_single_bit(start_) && std::has_single_bit(max_direct_) &&
                          start_ >= 64 && start_ <= max_direct_ &&
                          max_direct_ <= (std::uint64_t{1} << 32) && heap_bits_ >= 8 &&
                          heap_bits_ <= 62 && max_object_ <= max_direct_;
    if (!is_sound) input.damaged(what);
  }

  [[nodiscard]] std::size_t id_bytes() const noexcept { return id_bytes_; }

  /// The object of an id; the bytes stay valid until the next call.
  std::span<const std::byte> object(Cursor id) {
    constexpr std::uint8_t managed = 0;
    constexpr std::uint8_t huge = 1;
    const std::uint8_t flags = id.byte();
    const int kind = (flags >> 4) & 0x03;
    if ((flags >> 6) != 0) input_.damaged(what);
    if (kind == huge) return huge_object(id);
    if (kind != managed) input_.damaged(what);
    const std::uint64_t offset = id.number((heap_bits_ + 7) / 8);
    const std::size_t direct_bytes = (std::bit_width(max_direct_) - 1 + 7) / 8;
    const std::uint64_t size = id.number(std::min(direct_bytes, encoded_bytes(max_object_)));
    return managed_object(offset, size);
  }

 private:
  static constexpr std::string_view what = "a heap";

  struct Place {
    std::uint64_t address;
    std::uint64_t bytes;
  };

  std::span<const std::byte> huge_object(Cursor id) {
    Place place{};
    if (id_bytes_ >= 17) {
      place.address = id.address();
      place.bytes = id.number(8);
    } else {
      if (!huge_places_) read_huge_places();
      const auto found = huge_places_->find(id.number(std::min<std::size_t>(8, id_bytes_ - 1)));
      if (found == huge_places_->end()) input_.damaged("a heap lacks an object");
      place = found->second;
    }
    objects_.take(place.bytes);
    huge_ = input_.read(place.address, place.bytes, "an object of a heap");
    return huge_;
  }

  void read_huge_places() {
    huge_places_.emplace();
    visit_records(input_, huge_tree_, RecordType::huge_object, [&](Cursor record) {
      const std::uint64_t address = record.address();
      const std::uint64_t bytes = record.number(8);
      huge_places_->emplace(record.number(8), Place{.address = address, .bytes = bytes});
    });
  }

  std::span<const std::byte> managed_object(std::uint64_t offset, std::uint64_t bytes) {
    objects_.take(bytes);
    auto block = blocks_.upper_bound(offset);
    if (block == blocks_.begin() ||
        offset - std::prev(block)->first >= std::prev(block)->second.size()) {
      block = std::next(find_block(offset));
    }
    --block;
    const std::uint64_t first = offset - block->first;
    if (bytes > block->second.size() - first) input_.damaged("an object is longer than its heap");
    return std::span(block->second).subspan(first, bytes);
  }

  /// Of the blocks in a row.
  [[nodiscard]] std::uint64_t block_bytes(std::uint64_t row) const noexcept {
    return row == 0 ? start_ : start_ << (row - 1);
  }

  [[nodiscard]] std::size_t prefix_bytes() const noexcept {
    return 4 + 1 + 8 + (heap_bits_ + 7) / 8;
  }

  using Blocks = std::map<std::uint64_t, Bytes>;

  /// Reads the block that has this offset in it.
  Blocks::iterator find_block(std::uint64_t offset) {
    std::uint64_t address = root_;
    std::uint64_t rows = root_rows_;
    std::uint64_t first = 0;  // of the block in the heap
    std::uint64_t bytes = start_;
    while (rows > 0) {
      const std::uint64_t relative = offset - first;
      // Row 0 and 1 have blocks of the same size, so row r > 0 begins at width * start * 2^(r-1).
      const std::uint64_t unit = relative / (width_ * start_);
      const std::uint64_t row = static_cast<std::uint64_t>(std::bit_width(unit));
      if (row >= rows || row > 56) input_.damaged(what);
      bytes = block_bytes(row);
      const std::uint64_t row_start = row == 0 ? 0 : width_ * bytes;
      const std::uint64_t column = (relative - row_start) / bytes;
      const Bytes& block = read_indirect(address, rows);
      Cursor cursor(input_, block, what);
      cursor.skip(prefix_bytes() + 8 * (row * width_ + column));
      address = cursor.address();
      first += row_start + column * bytes;
      if (bytes <= max_direct_) break;
      // An indirect block covers as many bytes as its rows.
      rows = static_cast<std::uint64_t>(std::bit_width(bytes / (width_ * start_)));
    }
    if (offset - first >= bytes) input_.damaged(what);
    taken_.take(bytes);
    return blocks_.insert_or_assign(first, read_direct(address, bytes)).first;
  }

  /// An indirect block holds an address for each block of its rows.
  const Bytes& read_indirect(std::uint64_t address, std::uint64_t rows) {
    const std::uint64_t bytes = prefix_bytes() + 8 * rows * width_ + 4;
    const auto known = indirect_.find(address);
    if (known != indirect_.end() && known->second.size() == bytes) return known->second;
    taken_.take(bytes);
    Bytes block = input_.read_checked(address, bytes, "FHIB");
    return indirect_.insert_or_assign(address, std::move(block)).first->second;
  }

  Bytes read_direct(std::uint64_t address, std::uint64_t bytes) const {
    Bytes block = input_.read_block(address, bytes, "FHDB");
    if (!has_checksums_) return block;
    // The checksum is inside the block, and computed as if it were zero.
    const std::size_t at = prefix_bytes();
    Cursor cursor(input_, block, what);
    cursor.skip(at);
    const auto stored = static_cast<std::uint32_t>(cursor.number(4));
    std::fill_n(block.begin() + static_cast<std::ptrdiff_t>(at), 4, std::byte{0});
    input_.require_checksum(block, stored, what);
    return block;
  }

  const Input& input_;
  std::size_t id_bytes_ = 0;
  bool has_checksums_ = false;
  std::uint64_t max_object_ = 0;
  std::uint64_t huge_tree_ = undefined;
  std::uint64_t width_ = 0;
  std::uint64_t start_ = 0;
  std::uint64_t max_direct_ = 0;
  std::size_t heap_bits_ = 0;
  std::uint64_t root_ = undefined;
  std::uint64_t root_rows_ = 0;
  Blocks blocks_;                            ///< that were read, by offset
  std::map<std::uint64_t, Bytes> indirect_;  ///< by address
  TakenBytes taken_{input_, what};
  TakenBytes objects_{input_, what};
  std::optional<std::map<std::uint64_t, Place>> huge_places_;  ///< by id
  Bytes huge_;                                                 ///< the last one that was read
};

}  // namespace

void visit_heap_objects(const Input& input, std::uint64_t heap, std::uint64_t tree, RecordType type,
                        const Visit& visit) {
  FractalHeap objects(input, heap);
  visit_records(input, tree, type, [&](Cursor record) {
    if (type == RecordType::link_by_name) record.skip(4);  // the name's hash
    visit(Cursor(input, objects.object(Cursor(input, record.bytes(objects.id_bytes()), "a heap")),
                 "an object of a heap"));
  });
}

const std::map<std::uint64_t, GlobalHeap::Place>& GlobalHeap::places(std::uint64_t collection) {
  const auto known = collections_.find(collection);
  if (known != collections_.end()) return known->second;
  const Bytes header = input_.read_block(collection, 16, "GCOL");
  Cursor start(input_, header, what);
  start.skip(4);
  start.expect(1);
  start.skip(3);
  const std::uint64_t size = start.number(8);
  if (size < header.size() || !input_.holds(collection, size)) input_.damaged(what);
  taken_.take(size);
  std::map<std::uint64_t, Place> places;
  constexpr std::uint64_t prefix_bytes = 16;
  std::uint64_t at = header.size();
  while (size - at >= prefix_bytes) {
    const Bytes prefix = input_.read(collection + at, prefix_bytes, what);
    Cursor cursor(input_, prefix, what);
    const std::uint64_t number = cursor.number(2);
    cursor.skip(6);  // references
    const std::uint64_t bytes = cursor.number(8);
    at += prefix_bytes;
    if (number == 0 || bytes > size - at) break;  // free space
    places.emplace(number, Place{.address = collection + at, .bytes = bytes});
    at += std::min((bytes + 7) / 8 * 8, size - at);
  }
  return collections_.emplace(collection, std::move(places)).first->second;
}

std::string GlobalHeap::read(std::uint64_t collection, std::uint64_t index, std::uint64_t bytes) {
  if (bytes == 0) return {};
  const auto& all = places(collection);
  const auto place = all.find(index);
  if (place == all.end() || place->second.bytes < bytes) {
    input_.damaged(fmt::format("{} is not where its attribute says", what));
  }
  const Bytes text = input_.read(place->second.address, bytes, what);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

}  // namespace lockstep::h5
