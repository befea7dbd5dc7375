#include "hdf5_trees.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <vector>

namespace lockstep::h5 {
namespace {

/// A version 2 B-tree. Each node takes the same number of bytes.
class Tree2 final {
 public:
  Tree2(const Input& input, std::uint64_t address, RecordType type, const Visit& visit)
      : input_(input), type_(static_cast<std::uint8_t>(type)), visit_(visit) {
    const Bytes header = input.read_checked(address, header_bytes, "BTHD");
    Cursor cursor(input, header, what);
    cursor.skip(4);
    cursor.expect(0);
    cursor.expect(type_);
    node_bytes_ = cursor.number(4);
    record_bytes_ = static_cast<std::size_t>(cursor.number(2));
    depth_ = cursor.number(2);
    cursor.skip(2);  // when nodes split and merge
    root_ = cursor.address();
    root_records_ = cursor.number(2);
    total_ = cursor.number(8);
    set_levels();
  }

  void visit() {
    if (total_ == 0) return;
    visit_node(root_, root_records_, depth_);
    if (visited_ != total_) input_.damaged("a B-tree lacks records");
  }

 private:
  static constexpr std::string_view what = "a B-tree";
  static constexpr std::uint64_t header_bytes = 38;
  static constexpr std::uint64_t overhead = 10;  // of a node: signature, version, type, checksum
  static constexpr std::uint64_t max_depth = 32;

  /// Nodes at a height.
  struct Level {
    std::uint64_t records;      ///< the most in one node
    std::uint64_t below;        ///< the most in it and all nodes below
    std::size_t pointer_bytes;  ///< to a node of the level below
  };

  void set_levels() {
    if (record_bytes_ == 0 || node_bytes_ < overhead + record_bytes_ || depth_ > max_depth ||
        !input_.holds(0, node_bytes_) || total_ > input_.size() / record_bytes_) {
      input_.damaged(what);
    }
    const std::uint64_t leaf = (node_bytes_ - overhead) / record_bytes_;
    levels_.push_back({.records = leaf, .below = leaf, .pointer_bytes = 0});
    while (levels_.size() <= depth_) {
      const Level& below = levels_.back();
      const std::size_t total = levels_.size() > 1 ? encoded_bytes(below.below) : 0;
      const std::size_t pointer = 8 + encoded_bytes(leaf) + total;
      if (node_bytes_ < overhead + pointer + record_bytes_ + pointer) input_.damaged(what);
      const std::uint64_t records = (node_bytes_ - overhead - pointer) / (record_bytes_ + pointer);
      if (below.below > std::numeric_limits<std::uint64_t>::max() / (records + 2)) {
        input_.damaged(what);
      }
      levels_.push_back({.records = records,
                         .below = (records + 1) * below.below + records,
                         .pointer_bytes = pointer});
    }
  }

  void visit_node(std::uint64_t address, std::uint64_t records, std::uint64_t height) {
    const Level& level = levels_[height];
    // Empty nodes would let a damaged tree go on without end.
    if (records == 0 || records > level.records) input_.damaged(what);
    const std::uint64_t bytes =
        overhead + records * record_bytes_ + (height > 0 ? (records + 1) * level.pointer_bytes : 0);
    taken_.take(bytes);
    const Bytes node = input_.read_checked(address, bytes, height > 0 ? "BTIN" : "BTLF");
    Cursor cursor(input_, node, what);
    cursor.skip(4);
    cursor.expect(0);
    cursor.expect(type_);
    const auto all = cursor.bytes(records * record_bytes_);
    for (std::uint64_t i = 0; i <= records; ++i) {
      if (height > 0) {
        const std::uint64_t child = cursor.address();
        const std::uint64_t child_records = cursor.number(encoded_bytes(levels_[0].records));
        cursor.skip(level.pointer_bytes - 8 - encoded_bytes(levels_[0].records));
        visit_node(child, child_records, height - 1);
      }
      if (i == records) break;
      if (++visited_ > total_) input_.damaged("a B-tree has too many records");
      visit_(Cursor(input_, all.subspan(i * record_bytes_, record_bytes_), what));
    }
  }

  const Input& input_;
  std::uint8_t type_;
  const Visit& visit_;
  std::uint64_t node_bytes_ = 0;
  std::size_t record_bytes_ = 0;
  std::uint64_t depth_ = 0;
  std::uint64_t root_ = undefined;
  std::uint64_t root_records_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t visited_ = 0;
  TakenBytes taken_{input_, what};
  std::vector<Level> levels_;
};

using Leaf = std::function<void(Cursor& cursor, std::uint64_t entries)>;

/// A version 1 B-tree: calls `visit` with the entries of each leaf, from left to right.
class Tree1 final {
 public:
  Tree1(const Input& input, std::uint8_t type, std::size_t key_bytes, TakenBytes& taken,
        const Leaf& visit)
      : input_(input), type_(type), key_bytes_(key_bytes), taken_(taken), visit_(visit) {}

  void visit(std::uint64_t root) {
    const Bytes start = input_.read_block(root, prefix_bytes, "TREE");
    Cursor cursor(input_, start, what);
    cursor.skip(5);
    visit_node(root, cursor.byte(), true);
  }

 private:
  static constexpr std::string_view what = "a B-tree";
  static constexpr std::uint64_t prefix_bytes = 24;

  void visit_node(std::uint64_t address, std::uint64_t level, bool is_root) {
    const Bytes start = input_.read_block(address, prefix_bytes, "TREE");
    Cursor cursor(input_, start, what);
    cursor.skip(4);
    cursor.expect(type_);
    cursor.expect(static_cast<std::uint8_t>(level));
    const std::uint64_t entries = cursor.number(2);
    if (entries == 0 && !is_root) input_.damaged(what);
    const std::uint64_t bytes = entries * (key_bytes_ + 8) + key_bytes_;
    taken_.take(prefix_bytes + bytes);
    const Bytes rest = input_.read(address + prefix_bytes, bytes, what);
    Cursor body(input_, rest, what);
    if (level == 0) {
      visit_(body, entries);
      return;
    }
    for (std::uint64_t i = 0; i < entries; ++i) {
      body.skip(key_bytes_);
      visit_node(body.address(), level - 1, false);
    }
  }

  const Input& input_;
  std::uint8_t type_;
  std::size_t key_bytes_;
  TakenBytes& taken_;
  const Leaf& visit_;
};

}  // namespace

void visit_records(const Input& input, std::uint64_t address, RecordType type, const Visit& visit) {
  Tree2(input, address, type, visit).visit();
}

void visit_symbols(const Input& input, std::uint64_t tree, std::uint64_t heap,
                   const std::function<void(std::string name, Cursor entry)>& visit) {
  constexpr std::string_view what = "a group";
  const Bytes header = input.read_block(heap, 32, "HEAP");
  Cursor heap_cursor(input, header, what);
  heap_cursor.skip(4);
  heap_cursor.expect(0);
  heap_cursor.skip(3);
  const std::uint64_t names_bytes = heap_cursor.number(8);
  heap_cursor.skip(8);  // free space
  const Bytes names = input.read(heap_cursor.address(), names_bytes, "the names of a group");
  TakenBytes taken(input, what);
  TakenBytes name_bytes(input, "names of a group");
  const auto name_at = [&](std::uint64_t offset) {
    Cursor cursor(input, names, "a name");
    cursor.skip(offset);
    const auto rest = cursor.bytes(cursor.left());
    const auto bytes = std::ranges::find(rest, std::byte{0}) - rest.begin();
    name_bytes.take(static_cast<std::uint64_t>(bytes));
    return std::string(reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(bytes));
  };
  const Leaf leaf = [&](Cursor& cursor, std::uint64_t entries) {
    for (std::uint64_t i = 0; i < entries; ++i) {
      cursor.skip(8);  // the key
      const std::uint64_t address = cursor.address();
      const Bytes prefix = input.read_block(address, 8, "SNOD");
      Cursor start(input, prefix, what);
      start.skip(4);
      start.expect(1);
      start.skip(1);
      const std::uint64_t symbols = start.number(2);
      if (symbols == 0) input.damaged(what);
      constexpr std::uint64_t entry_bytes = 40;
      taken.take(prefix.size() + symbols * entry_bytes);
      const Bytes table = input.read(address + prefix.size(), symbols * entry_bytes, what);
      for (std::uint64_t s = 0; s < symbols; ++s) {
        Cursor entry(input, std::span(table).subspan(s * entry_bytes, entry_bytes), what);
        const std::uint64_t name = entry.number(8);
        visit(name_at(name), entry);
      }
    }
  };
  Tree1(input, 0, 8, taken, leaf).visit(tree);
}

void visit_chunk_entries(const Input& input, std::uint64_t tree, std::size_t axes,
                         const std::function<void(Cursor key, std::uint64_t address)>& visit) {
  const std::size_t key_bytes = 8 + 8 * (axes + 1);
  const Leaf leaf = [&](Cursor& cursor, std::uint64_t entries) {
    for (std::uint64_t i = 0; i < entries; ++i) {
      const Cursor key(input, cursor.bytes(key_bytes), "a chunk");
      visit(key, cursor.address());
    }
  };
  TakenBytes taken(input, "an index of chunks");
  Tree1(input, 1, key_bytes, taken, leaf).visit(tree);
}

}  // namespace lockstep::h5
