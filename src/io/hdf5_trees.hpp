#pragma once

#include "hdf5_input.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

/// The trees and heaps in which groups, attributes and indices of chunks are stored.
namespace lockstep::h5 {

/// Bytes that the format takes for numbers up to `limit`.
[[nodiscard]] inline std::size_t encoded_bytes(std::uint64_t limit) noexcept {
  return static_cast<std::size_t>(std::bit_width(limit | 1) - 1) / 8 + 1;
}

using Visit = std::function<void(Cursor)>;

/// Types of records of version 2 B-trees.
enum class RecordType : std::uint8_t {
  huge_object = 1,
  link_by_name = 5,
  attribute_by_name = 8,
  chunk = 10,
  filtered_chunk = 11,
};

/// Calls `visit` for each record of the version 2 B-tree with its header at `address`, in order.
void visit_records(const Input& input, std::uint64_t address, RecordType type, const Visit& visit);

/// Calls `visit` for each object of the fractal heap at `heap` that the tree at `tree` lists.
void visit_heap_objects(const Input& input, std::uint64_t heap, std::uint64_t tree, RecordType type,
                        const Visit& visit);

/// Calls `visit` for each link of a group's version 1 B-tree: its name, and the rest of its entry.
void visit_symbols(const Input& input, std::uint64_t tree, std::uint64_t heap,
                   const std::function<void(std::string name, Cursor entry)>& visit);

/// Calls `visit(key, child)` for each entry of the leaves of a version 1 B-tree of chunks.
void visit_chunk_entries(const Input& input, std::uint64_t tree, std::size_t axes,
                         const std::function<void(Cursor key, std::uint64_t address)>& visit);

/// Values of variable length, which are stored in collections.
class GlobalHeap final {
 public:
  explicit GlobalHeap(const Input& input) noexcept : input_(input), taken_(input, what) {}
  /// The first `bytes` of object `index`. Error(bad_input) if it is shorter.
  [[nodiscard]] std::string read(std::uint64_t collection, std::uint64_t index,
                                 std::uint64_t bytes);

 private:
  static constexpr std::string_view what = "text of variable length";
  struct Place {
    std::uint64_t address;
    std::uint64_t bytes;
  };
  const std::map<std::uint64_t, Place>& places(std::uint64_t collection);

  const Input& input_;
  std::map<std::uint64_t, std::map<std::uint64_t, Place>> collections_;
  TakenBytes taken_;
};

}  // namespace lockstep::h5
