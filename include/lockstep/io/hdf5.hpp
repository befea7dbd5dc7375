#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/unique_handle.hpp"

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// A thin layer over HDF5's C interface. Files are not trusted: checks shapes, types and lengths
/// before allocating. Errors name file, object, what was expected and what was found: bad_input
/// when reading, cannot_write when writing. The library never prints.
///
/// Thread-safe: one lock serializes all calls into the library, which is often built without
/// thread safety.
namespace lockstep::h5 {

void close_handle(herr_t (*close)(hid_t), hid_t handle) noexcept;

template <herr_t (*close)(hid_t)>
struct HandleTraits {
  using Handle = hid_t;
  static Handle null() noexcept { return H5I_INVALID_HID; }
  // Ignores a failed close: writers call close_written(), and readers already have their data.
  static void destroy(Handle handle) noexcept { close_handle(close, handle); }
};

using File = UniqueHandle<HandleTraits<&H5Fclose>>;
using Group = UniqueHandle<HandleTraits<&H5Gclose>>;
using Dataset = UniqueHandle<HandleTraits<&H5Dclose>>;
using Dataspace = UniqueHandle<HandleTraits<&H5Sclose>>;
using Datatype = UniqueHandle<HandleTraits<&H5Tclose>>;
using Attribute = UniqueHandle<HandleTraits<&H5Aclose>>;
using PropertyList = UniqueHandle<HandleTraits<&H5Pclose>>;

/// Non-owning view of a file, group or dataset: the base of a name lookup, or owner of attributes.
class Location final {
 public:
  Location(const File& file) noexcept : id_(file.get()) {}           // NOLINT(*-explicit-*)
  Location(const Group& group) noexcept : id_(group.get()) {}        // NOLINT(*-explicit-*)
  Location(const Dataset& dataset) noexcept : id_(dataset.get()) {}  // NOLINT(*-explicit-*)
  [[nodiscard]] hid_t id() const noexcept { return id_; }

 private:
  hid_t id_;
};

/// Opens for reading. Error(no_input) if absent or unreadable; Error(bad_input) if it is not HDF5,
/// is truncated, or its metadata do not verify.
[[nodiscard]] File open_file(const std::string& path);
/// Creates or replaces a file, with metadata checksums (format 1.10) and without object times, so
/// the same calls give the same bytes. Error(cannot_write).
[[nodiscard]] File create_file(const std::string& path);
/// Opens a file made by create_file() to add to it. Error(cannot_write).
[[nodiscard]] File open_for_update(const std::string& path);
/// Flushes and closes a file opened by the two functions above. Error(cannot_write), for instance
/// if the disk is full.
void close_written(File file);

[[nodiscard]] bool exists(Location location, const std::string& name);

enum class ObjectKind { group, dataset, other };
/// Error(bad_input) if the object is absent or a dangling link.
[[nodiscard]] ObjectKind kind_of(Location location, const std::string& name);
/// Names in a group, in creation order if the file stores it, else sorted.
[[nodiscard]] std::vector<std::string> children(Location location, const std::string& group,
                                                std::size_t max_children = 1'000'000);
[[nodiscard]] Group open_group(Location location, const std::string& name);
[[nodiscard]] Group create_group(Location location, const std::string& name);

enum class TypeClass { integer, floating, other };
enum class Layout { contiguous, chunked, compact, other };

struct DatasetInfo {
  std::vector<std::uint64_t> dims;
  std::uint64_t elements = 0;  ///< product of `dims`, checked for overflow
  TypeClass type = TypeClass::other;
  std::size_t element_size = 0;  ///< bytes; elements * element_size is checked too
  bool is_signed = false;
  bool little_endian = true;
  Layout layout = Layout::other;
  std::vector<std::string> filters;
  /// File offset of contiguous values, bytes; nullopt for other layouts and if no storage was ever
  /// allocated.
  std::optional<std::uint64_t> offset;
};
[[nodiscard]] std::string to_string(const DatasetInfo& info);  ///< "10x28x28x1 uint8"

[[nodiscard]] Dataset open_dataset(Location location, const std::string& name);
/// Error(bad_input) if absent, not a dataset, or its shape overflows.
[[nodiscard]] DatasetInfo describe(const Dataset& dataset);
[[nodiscard]] DatasetInfo describe(Location location, const std::string& name);

/// T is one of std::int8_t to std::uint64_t, float, double. The dataset must have T's type class;
/// the library converts sizes and byte order, and clamps integers to T's range.
template <typename T>
[[nodiscard]] std::vector<T> read_values(Location location, const std::string& name,
                                         std::uint64_t max_elements);
/// Reads rows [first, first + count) of the outermost axis into `values`, whose size must match
/// exactly.
template <typename T>
void read_rows(const Dataset& dataset, std::uint64_t first, std::uint64_t count,
               std::span<T> values);

/// Creates a contiguous little-endian dataset. The caller must fill all of it with write_rows(),
/// since no fill values are written.
template <typename T>
[[nodiscard]] Dataset create_dataset(Location location, const std::string& name,
                                     std::span<const std::uint64_t> dims);
template <typename T>
void write_rows(const Dataset& dataset, std::uint64_t first, std::uint64_t count,
                std::span<const T> values);
/// Creates and fills a dataset. Without axes it is a scalar.
template <typename T>
Dataset write_dataset(Location location, const std::string& name,
                      std::span<const std::uint64_t> dims, std::span<const T> values);

/// Attributes: nullopt if absent, Error(bad_input) for a wrong type class or shape. Strings may
/// have fixed or variable length, as h5py writes them, and end at their first zero byte.
inline constexpr std::size_t max_string_bytes = std::size_t{16} << 20;
inline constexpr std::uint64_t max_attribute_elements = 1'000'000;
[[nodiscard]] bool has_attribute(Location location, const std::string& name);
[[nodiscard]] std::optional<std::int64_t> read_int64(Location location, const std::string& name);
[[nodiscard]] std::optional<std::uint64_t> read_uint64(Location location, const std::string& name);
[[nodiscard]] std::optional<std::uint32_t> read_uint32(Location location, const std::string& name);
[[nodiscard]] std::optional<double> read_double(Location location, const std::string& name);
[[nodiscard]] std::optional<std::string> read_string(Location location, const std::string& name);
[[nodiscard]] std::optional<std::vector<std::string>> read_strings(Location location,
                                                                   const std::string& name);
/// One axis; a scalar gives one value.
[[nodiscard]] std::optional<std::vector<float>> read_floats(Location location,
                                                            const std::string& name);

void write_int64(Location location, const std::string& name, std::int64_t value);
void write_uint64(Location location, const std::string& name, std::uint64_t value);
void write_uint32(Location location, const std::string& name, std::uint32_t value);
void write_double(Location location, const std::string& name, double value);
void write_string(Location location, const std::string& name, std::string_view value);
void write_strings(Location location, const std::string& name, std::span<const std::string> values);
void write_floats(Location location, const std::string& name, std::span<const float> values);

}  // namespace lockstep::h5
