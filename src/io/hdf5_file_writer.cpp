#include "hdf5_library.hpp"
#include "output_driver.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

namespace lockstep::h5 {
namespace {

PropertyList property_list(hid_t kind) {
  return PropertyList(H5Pcreate(kind));
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
  PropertyList list = property_list(H5P_FILE_ACCESS);
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

/// Error(cannot_write), with errno if that tells why.
File require_open(File file, const std::string& path) {
  if (!file && errno != 0) cannot_write(path, errno);
  if (!file) cannot_write(path);
  return file;
}

/// A global, since the library's state is global.
std::recursive_mutex& library_mutex() noexcept {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

LibraryLock::LibraryLock() noexcept : lock_(library_mutex()) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

void close_handle(herr_t (*close)(hid_t), hid_t handle) noexcept {
  const LibraryLock lock;
  // If a thread ends with errors on its stack, the library cannot close at exit.
  if (close(handle) < 0) H5Eclear2(H5E_DEFAULT);
}

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

void cannot_write(const std::string& object) {
  fail(ExitStatus::cannot_write, "cannot write {} ({}); check that the disk is not full", object,
       library_reason());
}

void cannot_write(const std::string& object, int error) {
  fail(ExitStatus::cannot_write,
       "cannot write {} ({}); check that the directory exists, is writable and is not full", object,
       std::strerror(error));
}

void check_written(hid_t object, bool success) {
  const int error = output_error(object);
  if (error != 0) cannot_write(name_of(object), error);
  if (!success) cannot_write(name_of(object));
}

File create_file(const std::string& path, const Descriptor& descriptor) {
  const LibraryLock lock;
  const PropertyList creation = property_list(H5P_FILE_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  H5Pset_link_creation_order(creation.get(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  errno = 0;
  return require_open(File(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(),
                                     output_access_list(descriptor).get())),
                      path);
}

File open_for_update(const std::string& path, const Descriptor& descriptor) {
  const LibraryLock lock;
  errno = 0;
  return require_open(
      File(H5Fopen(path.c_str(), H5F_ACC_RDWR, output_access_list(descriptor).get())), path);
}

void close_written(File file) {
  const LibraryLock lock;
  const std::string name = name_of(file.get());
  if (const int error = close_output(std::move(file)); error != 0) cannot_write(name, error);
}

Group create_group(Location location, const std::string& name) {
  const LibraryLock lock;
  const PropertyList creation = property_list(H5P_GROUP_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  H5Pset_link_creation_order(creation.get(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  Group group(H5Gcreate2(location.id(), name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  if (!group) cannot_write(name_of(location, name));
  return group;
}

}  // namespace lockstep::h5
