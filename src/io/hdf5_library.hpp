#pragma once

#include "lockstep/io/hdf5_writer.hpp"

#include <mutex>
#include <string>

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

[[noreturn]] void cannot_write(const std::string& object);
[[noreturn]] void cannot_write(const std::string& object, int error);
/// Error(cannot_write) if `success` is false or any earlier write to that file failed.
void check_written(hid_t object, bool success);

/// The HDF5 type of T in files, which is little-endian, and in memory, as core/little_endian.hpp
/// requires.
template <typename T>
[[nodiscard]] hid_t type_of() noexcept;

}  // namespace lockstep::h5
