#pragma once

#include "lockstep/io/hdf5.hpp"

#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::h5 {

/// Recursive lock that every caller of the library holds. Also taken if the library was built
/// thread-safe: such a library serializes its calls too, and a single code path is always the
/// tested one.
class LibraryLock final {
 public:
  /// Also disables the library's error output, which is a setting per thread.
  LibraryLock() noexcept;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

/// The library's reason for the last failure; clears its error stack.
[[nodiscard]] std::string library_reason();

/// "FILE:/object", as far as the library can tell.
[[nodiscard]] std::string name_of(hid_t object);
[[nodiscard]] std::string name_of(Location location, const std::string& name);

[[noreturn]] void cannot_read(const std::string& object);
[[noreturn]] void cannot_write(const std::string& object);
[[noreturn]] void cannot_write(const std::string& object, int error);
/// Error(cannot_write) if `success` is false or any earlier write to that file failed.
void check_written(hid_t object, bool success);

/// HDF5 types of T: native in memory, little-endian in files.
template <typename T>
[[nodiscard]] hid_t native_type() noexcept;
template <typename T>
[[nodiscard]] hid_t file_type() noexcept;

struct Extent {
  std::vector<std::uint64_t> dims;
  std::uint64_t elements = 1;
};
/// Error(bad_input) if the product of `dims` overflows or the data space has no shape.
[[nodiscard]] Extent extent_of(const Dataspace& space, const std::string& object);

struct ElementType {
  TypeClass type = TypeClass::other;
  std::size_t size = 0;
  bool is_signed = false;
  bool little_endian = true;
};
[[nodiscard]] ElementType element_type_of(const Datatype& type);
[[nodiscard]] std::string to_string(const ElementType& type);

}  // namespace lockstep::h5
