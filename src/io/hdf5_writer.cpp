#include "lockstep/io/hdf5_writer.hpp"

#include "output_driver.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <mutex>
#include <new>
#include <numeric>
#include <type_traits>
#include <vector>

namespace lockstep::h5 {
namespace {

/// Recursive lock that every caller of the library holds. Also taken if the library was built
/// thread-safe: such a library serializes its calls too, and a single code path is always the
/// tested one.
class LibraryLock final {
 public:
  /// Also disables the library's error output, which is a setting per thread.
  LibraryLock() noexcept : lock_(mutex()) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

 private:
  /// A global, since the library's state is global.
  static std::recursive_mutex& mutex() noexcept {
    static std::recursive_mutex mutex;
    return mutex;
  }
  std::lock_guard<std::recursive_mutex> lock_;
};

/// How groups are made, and files with their root: with the order of their links, without times.
PropertyList creation_list(hid_t kind) {
  PropertyList list(H5Pcreate(kind));
  H5Pset_obj_track_times(list.get(), false);
  H5Pset_link_creation_order(list.get(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  return list;
}

/// The useful part of a driver's message.
std::string essence(const std::string& description) {
  constexpr std::string_view mark = "error message = '";
  const std::size_t begin = description.find(mark);
  if (begin == std::string::npos) return description;
  const std::size_t end = description.find('\'', begin + mark.size());
  return description.substr(begin + mark.size(), end - begin - mark.size());
}

PropertyList output_access_list(const Descriptor& file) {
  PropertyList list(H5Pcreate(H5P_FILE_ACCESS));
#if H5_VERSION_GE(1, 10, 7)
  // Many cluster file systems cannot lock, and writers publish whole files by rename, so locks are
  // not needed. The environment variable HDF5_USE_FILE_LOCKING takes precedence.
  H5Pset_file_locking(list.get(), false, true);
#endif
  H5Pset_libver_bounds(list.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_fclose_degree(list.get(), H5F_CLOSE_STRONG);
  use_output_driver(list, file);
  return list;
}

/// The library's reason for the last failure; clears its error stack.
std::string library_reason() {
  // The callbacks allocate nothing, since no exception may pass through the library, which is C.
  std::array<char, 512> innermost{};
  const auto keep = [](unsigned, const H5E_error2_t* error, void* text) -> herr_t {
    if (error->desc == nullptr || *error->desc == '\0') return 0;
    auto* const kept = static_cast<std::array<char, 512>*>(text);
    std::strncpy(kept->data(), error->desc, kept->size() - 1);
    return 0;
  };
  // Downward ends at the innermost call, which has the most specific reason.
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep, &innermost);
  H5Eclear2(H5E_DEFAULT);
  // Neither the file nor the disk is at fault then.
  if (std::strcmp(innermost.data(), "memory allocation failed") == 0) throw std::bad_alloc();
  return innermost.front() == '\0' ? "the HDF5 library gives no reason" : essence(innermost.data());
}

/// "FILE:/object", as far as the library can tell.
std::string name_of(hid_t object) {
  std::string file(4096, '\0');
  std::string name(1024, '\0');
  const ssize_t file_length = H5Fget_name(object, file.data(), file.size());
  const ssize_t name_length = H5Iget_name(object, name.data(), name.size());
  file.resize(file_length > 0 ? std::min<std::size_t>(static_cast<std::size_t>(file_length), 4095)
                              : 0);
  name.resize(name_length > 0 ? std::min<std::size_t>(static_cast<std::size_t>(name_length), 1023)
                              : 0);
  return name.empty() || name == "/" ? file : file + ":" + name;
}

std::string name_of(Location location, const std::string& name) {
  const std::string parent = name_of(location.id());
  if (name.starts_with('/')) return parent.substr(0, parent.find(":/")) + ":" + name;
  return parent + (parent.find(":/") == std::string::npos ? ":/" : "/") + name;
}

[[noreturn]] void cannot_write(const std::string& object) {
  fail(ExitStatus::cannot_write, "cannot write {} ({}); check that the disk is not full", object,
       library_reason());
}

[[noreturn]] void cannot_write(const std::string& object, int error) {
  fail(ExitStatus::cannot_write,
       "cannot write {} ({}); check that the directory exists, is writable and is not full", object,
       std::strerror(error));
}

/// Error(cannot_write) if `success` is false or any earlier write to that file failed.
void check_written(hid_t object, bool success) {
  const int error = output_error(object);
  if (error != 0) cannot_write(name_of(object), error);
  if (!success) cannot_write(name_of(object));
}

/// Error(cannot_write), with errno if that tells why.
File require_open(File file, const std::string& path) {
  if (!file && errno != 0) cannot_write(path, errno);
  if (!file) cannot_write(path);
  return file;
}

/// Selects rows of the outermost axis. Error(internal) unless they exist and hold `values`
/// elements.
Dataspace select_rows(const Dataset& dataset, std::uint64_t first, std::uint64_t count,
                      std::uint64_t values) {
  const std::string object = name_of(dataset.get());
  Dataspace space(H5Dget_space(dataset.get()));
  const int axes = H5Sget_simple_extent_ndims(space.get());
  std::vector<hsize_t> size(static_cast<std::size_t>(std::max(1, axes)), 1);
  if (axes < 0 || H5Sget_simple_extent_dims(space.get(), size.data(), nullptr) < 0) {
    cannot_write(object);
  }
  const std::uint64_t rows = size[0];
  const std::uint64_t row = std::accumulate(size.begin() + 1, size.end(), std::uint64_t{1},
                                            std::multiplies<std::uint64_t>());
  if (first > rows || count > rows - first || count * row != values) {
    fail(ExitStatus::internal,
         "rows {} to {} of {} are not {} values (it has {} rows of {}); report this", first,
         first + count, object, values, rows, row);
  }
  if (axes == 0) return space;
  std::vector<hsize_t> start(size.size(), 0);
  start[0] = first;
  size[0] = count;
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(),
                          nullptr) < 0) {
    cannot_write(object);
  }
  return space;
}

void write(Location location, const std::string& name, const Datatype& type, const Dataspace& space,
           const void* data) {
  const std::string object = fmt::format("attribute {} of {}", name, name_of(location.id()));
  const Attribute attribute(
      H5Acreate2(location.id(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute || H5Awrite(attribute.get(), type.get(), data) < 0) cannot_write(object);
}

/// Fixed-size UTF-8 padded with zeros: unlike variable-length text, it is covered by a metadata
/// checksum.
Datatype text_type(std::size_t size) {
  Datatype type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type.get(), std::max<std::size_t>(size, 1));
  H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
  H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

Dataspace one_axis(std::size_t size) {
  const hsize_t extent = size;
  return Dataspace(H5Screate_simple(1, &extent, nullptr));
}

/// The HDF5 type of T in files, which is little-endian, and in memory, as core/little_endian.hpp
/// requires.
template <typename T>
hid_t type_of() noexcept {
  if (std::is_floating_point_v<T>) return sizeof(T) == 4 ? H5T_IEEE_F32LE : H5T_IEEE_F64LE;
  constexpr std::size_t size = std::bit_width(sizeof(T)) - 1;
  const std::array whole{H5T_STD_I8LE, H5T_STD_I16LE, H5T_STD_I32LE, H5T_STD_I64LE};
  const std::array positive{H5T_STD_U8LE, H5T_STD_U16LE, H5T_STD_U32LE, H5T_STD_U64LE};
  return std::is_signed_v<T> ? whole[size] : positive[size];
}

}  // namespace

void close_handle(herr_t (*close)(hid_t), hid_t handle) noexcept {
  const LibraryLock lock;
  // If a thread ends with errors on its stack, the library cannot close at exit.
  if (close(handle) < 0) H5Eclear2(H5E_DEFAULT);
}

File create_file(const std::string& path, const Descriptor& descriptor) {
  const LibraryLock lock;
  const PropertyList creation = creation_list(H5P_FILE_CREATE);
  const PropertyList access = output_access_list(descriptor);
  errno = 0;
  return require_open(File(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get())),
                      path);
}

File open_for_update(const std::string& path, const Descriptor& descriptor) {
  const LibraryLock lock;
  const PropertyList access = output_access_list(descriptor);
  errno = 0;
  return require_open(File(H5Fopen(path.c_str(), H5F_ACC_RDWR, access.get())), path);
}

void close_written(File file) {
  const LibraryLock lock;
  const std::string name = name_of(file.get());
  if (const int error = close_output(std::move(file)); error != 0) cannot_write(name, error);
}

Group create_group(Location location, const std::string& name) {
  const LibraryLock lock;
  const PropertyList creation = creation_list(H5P_GROUP_CREATE);
  Group group(H5Gcreate2(location.id(), name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  if (!group) cannot_write(name_of(location, name));
  return group;
}

template <typename T>
Dataset create_dataset(Location location, const std::string& name,
                       std::span<const std::uint64_t> dims) {
  const LibraryLock lock;
  const std::vector<hsize_t> extents(dims.begin(), dims.end());
  const Dataspace space(
      dims.empty() ? H5Screate(H5S_SCALAR)
                   : H5Screate_simple(static_cast<int>(dims.size()), extents.data(), nullptr));
  const PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_layout(creation.get(), H5D_CONTIGUOUS);
  H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
  H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER);
  H5Pset_obj_track_times(creation.get(), false);
  Dataset dataset(H5Dcreate2(location.id(), name.c_str(), type_of<T>(), space.get(), H5P_DEFAULT,
                             creation.get(), H5P_DEFAULT));
  if (!space || !dataset) cannot_write(name_of(location, name));
  return dataset;
}

template <typename T>
void write_rows(const Dataset& dataset, std::uint64_t first, std::uint64_t count,
                std::span<const T> values) {
  const LibraryLock lock;
  const Dataspace rows = select_rows(dataset, first, count, values.size());
  if (values.empty()) return;
  check_written(dataset.get(), H5Dwrite(dataset.get(), type_of<T>(), one_axis(values.size()).get(),
                                        rows.get(), H5P_DEFAULT, values.data()) >= 0);
}

template <typename T>
void write_number(Location location, const std::string& name, T value) {
  const LibraryLock lock;
  write(location, name, Datatype(H5Tcopy(type_of<T>())), Dataspace(H5Screate(H5S_SCALAR)), &value);
}

void write_string(Location location, const std::string& name, std::string_view value) {
  const LibraryLock lock;
  const std::string padded = value.empty() ? std::string(1, '\0') : std::string(value);
  write(location, name, text_type(value.size()), Dataspace(H5Screate(H5S_SCALAR)), padded.data());
}

void write_strings(Location location, const std::string& name,
                   std::span<const std::string> values) {
  const LibraryLock lock;
  std::size_t longest = 1;
  for (const std::string& value : values) longest = std::max(longest, value.size());
  std::string padded(longest * values.size(), '\0');
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i].copy(padded.data() + i * longest, longest);
  write(location, name, text_type(longest), one_axis(values.size()), padded.data());
}

void write_floats(Location location, const std::string& name, std::span<const float> values) {
  const LibraryLock lock;
  constexpr float none = 0;  // the library needs an address even for zero values
  write(location, name, Datatype(H5Tcopy(type_of<float>())), one_axis(values.size()),
        values.empty() ? &none : values.data());
}

#define LOCKSTEP_H5_WRITE(T)                                                                     \
  template Dataset create_dataset<T>(Location, const std::string&,                               \
                                     std::span<const std::uint64_t>);                            \
  template void write_rows<T>(const Dataset&, std::uint64_t, std::uint64_t, std::span<const T>); \
  template void write_number<T>(Location, const std::string&, T);
LOCKSTEP_H5_WRITE(std::int8_t)
LOCKSTEP_H5_WRITE(std::uint8_t)
LOCKSTEP_H5_WRITE(std::int16_t)
LOCKSTEP_H5_WRITE(std::uint16_t)
LOCKSTEP_H5_WRITE(std::int32_t)
LOCKSTEP_H5_WRITE(std::uint32_t)
LOCKSTEP_H5_WRITE(std::int64_t)
LOCKSTEP_H5_WRITE(std::uint64_t)
LOCKSTEP_H5_WRITE(float)
LOCKSTEP_H5_WRITE(double)
#undef LOCKSTEP_H5_WRITE

}  // namespace lockstep::h5
