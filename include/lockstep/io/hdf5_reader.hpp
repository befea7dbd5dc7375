#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/file_path.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

/// Reads HDF5 files, which are not trusted, without the HDF5 library: a bounded parser of the parts
/// of the format that data sets and checkpoints use. Everything else is refused by name:
///
/// - hard links only; no user-defined, soft or external ones, no external storage, no virtual or
///   shared parts, so that every byte comes from the one file that was opened
/// - integers of 1 to 8 bytes, IEEE floats of 2, 4 and 8, and text, of fixed or variable length
/// - contiguous, compact and chunked layouts; the filters deflate, shuffle and fletcher32
///
/// Metadata checksums are verified where the format has them. Memory is bounded by the size of the
/// file, and by 1032 times it for deflated values. Errors name file, object, what was expected and
/// what was found: bad_input. The format: "HDF5 File Format Specification Version 3.0" of the HDF
/// Group. Thread-safe.
namespace lockstep::h5 {

class Node;

/// A group or dataset of an opened file, which stays open as long as one of its objects is there.
/// Null: none.
using Object = std::shared_ptr<const Node>;

/// Opens a file for reading; its root group. Error(no_input) if absent or unreadable;
/// Error(bad_input) if it is not HDF5, is truncated, or its metadata do not verify.
[[nodiscard]] Object open_file(const FilePath& path);

/// Names of objects are relative to `parent`, or begin with "/".
[[nodiscard]] bool exists(const Object& parent, const std::string& name);
/// Names in a group, in creation order if the file stores it, else sorted.
[[nodiscard]] std::vector<std::string> children(const Object& parent, const std::string& group,
                                                std::size_t max_children = 1'000'000);
[[nodiscard]] Object open_group(const Object& parent, const std::string& name);
[[nodiscard]] Object open_dataset(const Object& parent, const std::string& name);

enum class TypeClass { integer, floating, text, other };
enum class Layout { contiguous, chunked, compact };

struct ElementType {
  TypeClass type = TypeClass::other;
  std::size_t size = 0;  ///< bytes
  bool is_signed = false;
  bool little_endian = true;
};

struct DatasetInfo {
  std::vector<std::uint64_t> dims;
  std::uint64_t elements = 0;  ///< product of `dims`; with the element size below 2^62
  ElementType element;
  Layout layout = Layout::contiguous;
  std::uint64_t chunk_rows = 1;  ///< of the outermost axis in a chunk; 1 without chunks
  std::vector<std::string> filters;
  /// File offset of contiguous values, bytes; nullopt for other layouts and if no storage was ever
  /// allocated.
  std::optional<std::uint64_t> offset;
};
/// Of the whole file.
[[nodiscard]] std::uint64_t file_bytes(const Object& object);
[[nodiscard]] std::string to_string(const DatasetInfo& info);  ///< "10x28x28x1 uint8"

[[nodiscard]] DatasetInfo describe(const Object& dataset);
/// Error(bad_input) if absent, not a dataset, its shape overflows, or it uses what is not read.
[[nodiscard]] DatasetInfo describe(const Object& parent, const std::string& name);

/// Error(bad_input) if there are more values than `max_elements`, or than the file can hold: to be
/// called before memory is taken for them.
void require_values(const Object& dataset, std::uint64_t max_elements);
/// Reads rows [first, first + count) of the outermost axis into `values`, whose size must match
/// exactly. Without axes there is one row. T is one of std::int8_t to std::uint64_t, float, double.
/// The dataset must have T's type class; sizes and byte order are converted, and integers clamped
/// to T's range. Of chunked values, the chunk that was decoded last is kept; keep_chunks() keeps
/// more.
template <typename T>
void read_rows(const Object& dataset, std::uint64_t first, std::uint64_t count,
               std::span<T> values);

/// Keeps decoded chunks of up to `bytes` in memory, for rows that are read in order.
void keep_chunks(const Object& dataset, std::uint64_t bytes);

/// Attributes: nullopt if absent, Error(bad_input) for a wrong type class or shape. Strings may
/// have fixed or variable length, as h5py writes them, and end at their first zero byte.
inline constexpr std::size_t max_string_bytes = std::size_t{16} << 20;
inline constexpr std::uint64_t max_attribute_elements = 1'000'000;
[[nodiscard]] bool has_attribute(const Object& object, const std::string& name);
/// T is std::int64_t, std::uint64_t, std::uint32_t or double.
template <typename T>
[[nodiscard]] std::optional<T> read_number(const Object& object, const std::string& name);
[[nodiscard]] std::optional<std::string> read_string(const Object& object, const std::string& name);
[[nodiscard]] std::optional<std::vector<std::string>> read_strings(const Object& object,
                                                                   const std::string& name);
/// One axis; a scalar gives one value.
[[nodiscard]] std::optional<std::vector<float>> read_floats(const Object& object,
                                                            const std::string& name);

}  // namespace lockstep::h5
