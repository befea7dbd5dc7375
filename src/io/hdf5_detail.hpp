#pragma once

#include "lockstep/io/hdf5.hpp"

#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::h5 {

/// Exclusive use of the library by this thread, which may nest; whatever calls the library holds
/// it. Taken even where the library was built thread-safe: such a library serializes its calls in
/// the same way, and one path everywhere is the one that is tested.
class LibraryLock final {
 public:
  /// Also keeps the library from printing errors: each thread has its own setting.
  LibraryLock() noexcept;

 private:
  std::lock_guard<std::recursive_mutex> lock_;
};

/// Why the last call failed, in the library's words; empties its stack.
[[nodiscard]] std::string library_reason();

/// "FILE:/object", as far as the library can tell.
[[nodiscard]] std::string name_of(hid_t object);
[[nodiscard]] std::string name_of(Location location, const std::string& name);

[[noreturn]] void cannot_read(const std::string& object);
[[noreturn]] void cannot_write(const std::string& object);
[[noreturn]] void cannot_write(const std::string& object, int error);
/// Error(cannot_write) where the call failed, or any write to that file did.
void check_written(hid_t object, bool success);

/// The library's types for T: in memory, and little-endian in files.
template <typename T>
[[nodiscard]] hid_t native_type() noexcept;
template <typename T>
[[nodiscard]] hid_t file_type() noexcept;

/// Error(bad_input) where the product overflows or there is no shape at all.
struct Extent {
  std::vector<std::uint64_t> dims;
  std::uint64_t elements = 1;
};
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
