#pragma once

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/unique_handle.hpp"

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

/// Writes HDF5 files by the HDF5 library, which is never given a file of somebody else
/// (hdf5_reader.hpp reads those). Error(cannot_write) names file, object and reason. The library
/// never prints.
///
/// Thread-safe: one lock serializes all calls into the library, which is often built without
/// thread safety.
namespace lockstep::h5 {

void close_handle(herr_t (*close)(hid_t), hid_t handle) noexcept;

template <herr_t (*close)(hid_t)>
struct HandleTraits {
  using Handle = hid_t;
  static Handle null() noexcept { return H5I_INVALID_HID; }
  // Ignores a failed close: writers call close_written().
  static void destroy(Handle handle) noexcept { close_handle(close, handle); }
};

using File = UniqueHandle<HandleTraits<&H5Fclose>>;
using Group = UniqueHandle<HandleTraits<&H5Gclose>>;
using Dataset = UniqueHandle<HandleTraits<&H5Dclose>>;
using Dataspace = UniqueHandle<HandleTraits<&H5Sclose>>;
using Datatype = UniqueHandle<HandleTraits<&H5Tclose>>;
using Attribute = UniqueHandle<HandleTraits<&H5Aclose>>;
using PropertyList = UniqueHandle<HandleTraits<&H5Pclose>>;

/// Non-owning view of a file, group or dataset: the base of a name, or owner of attributes.
class Location final {
 public:
  Location(const File& file) noexcept : id_(file.get()) {}           // NOLINT(*-explicit-*)
  Location(const Group& group) noexcept : id_(group.get()) {}        // NOLINT(*-explicit-*)
  Location(const Dataset& dataset) noexcept : id_(dataset.get()) {}  // NOLINT(*-explicit-*)
  [[nodiscard]] hid_t id() const noexcept { return id_; }

 private:
  hid_t id_;
};

/// Replaces the contents of a file that is open for reading and writing, with metadata checksums
/// (format 1.10) and without object times, so the same calls give the same bytes. `path` names it
/// in messages.
[[nodiscard]] File create_file(const std::string& path, const Descriptor& file);
/// Opens a file made by create_file() to add to it.
[[nodiscard]] File open_for_update(const std::string& path, const Descriptor& file);
/// Flushes and closes a file opened by the two functions above. Error(cannot_write), for instance
/// if the disk is full.
void close_written(File file);

[[nodiscard]] Group create_group(Location location, const std::string& name);

/// Creates a contiguous little-endian dataset. The caller must fill all of it with write_rows(),
/// since no fill values are written. T is one of std::int8_t to std::uint64_t, float, double.
template <typename T>
[[nodiscard]] Dataset create_dataset(Location location, const std::string& name,
                                     std::span<const std::uint64_t> dims);
/// Writes rows [first, first + count) of the outermost axis. Without axes there is one row.
template <typename T>
void write_rows(const Dataset& dataset, std::uint64_t first, std::uint64_t count,
                std::span<const T> values);

/// T is std::int64_t, std::uint64_t, std::uint32_t or double.
template <typename T>
void write_number(Location location, const std::string& name, T value);
void write_string(Location location, const std::string& name, std::string_view value);
void write_strings(Location location, const std::string& name, std::span<const std::string> values);
void write_floats(Location location, const std::string& name, std::span<const float> values);

}  // namespace lockstep::h5
