#include "hdf5_detail.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/io/other_format.hpp"
#include "output_driver.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <new>
#include <span>

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

PropertyList access_list() {
  PropertyList list = property_list(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 10, 7)
  // Many cluster file systems cannot lock, and writers publish whole files by rename, so locks are
  // not needed. The environment variable HDF5_USE_FILE_LOCKING takes precedence.
  H5Pset_file_locking(list.get(), false, true);
#endif
  return list;
}

PropertyList output_access_list() {
  PropertyList list = access_list();
  H5Pset_libver_bounds(list.get(), H5F_LIBVER_V110, H5F_LIBVER_V110);
  H5Pset_fclose_degree(list.get(), H5F_CLOSE_STRONG);
  use_output_driver(list);
  return list;
}

/// Names the format of a file that the library did not open, if that is known.
[[noreturn]] void not_hdf5(const std::string& path, std::uint64_t size) {
  const std::string reason = library_reason();
  std::string start(static_cast<std::size_t>(std::min<std::uint64_t>(size, most_start_bytes)),
                    '\0');
  const auto read = read_at(open_input(path), 0, std::as_writable_bytes(std::span(start)));
  start.resize(read.value_or(0));
  if (const auto other = other_format({.path = path, .bytes = start, .size = size})) {
    fail(ExitStatus::bad_input, "{} is {} ({} bytes; HDF5 is read); {}", path, other->kind, size,
         other->advice);
  }
  fail(ExitStatus::bad_input, "{} is not a whole HDF5 file ({}; {} bytes); copy or write it again",
       path, reason, size);
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

void cannot_read(const std::string& object) {
  fail(ExitStatus::bad_input, "cannot read {} ({}); it may be truncated or damaged", object,
       library_reason());
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

File open_file(const std::string& path) {
  const LibraryLock lock;
  // Check before the library does, which cannot tell "absent" from "damaged" and would block on a
  // FIFO.
  refuse_saved_model(path);
  const std::uint64_t bytes = require_input(path);
  File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access_list().get()));
  if (!file) not_hdf5(path, bytes);
  return file;
}

File create_file(const std::string& path) {
  const LibraryLock lock;
  const PropertyList access = output_access_list();
  const PropertyList creation = property_list(H5P_FILE_CREATE);
  H5Pset_obj_track_times(creation.get(), false);
  H5Pset_link_creation_order(creation.get(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  errno = 0;
  File file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()));
  if (!file && errno != 0) cannot_write(path, errno);
  if (!file) cannot_write(path);
  return file;
}

File open_for_update(const std::string& path) {
  const LibraryLock lock;
  errno = 0;
  File file(H5Fopen(path.c_str(), H5F_ACC_RDWR, output_access_list().get()));
  if (!file && errno != 0) cannot_write(path, errno);
  if (!file) cannot_write(path);
  return file;
}

void close_written(File file) {
  const LibraryLock lock;
  const std::string name = name_of(file.get());
  if (const int error = close_output(std::move(file)); error != 0) cannot_write(name, error);
}

bool exists(Location location, const std::string& name) {
  const LibraryLock lock;
  // H5Lexists fails if an intermediate group is missing, so check each one first.
  for (std::size_t end = name.find('/', 1); end != std::string::npos;
       end = name.find('/', end + 1)) {
    const std::string prefix = name.substr(0, end);
    if (H5Lexists(location.id(), prefix.c_str(), H5P_DEFAULT) <= 0) {
      H5Eclear2(H5E_DEFAULT);
      return false;
    }
  }
  const bool found =
      name == "/" || (H5Lexists(location.id(), name.c_str(), H5P_DEFAULT) > 0 &&
                      H5Oexists_by_name(location.id(), name.c_str(), H5P_DEFAULT) > 0);
  H5Eclear2(H5E_DEFAULT);
  return found;
}

ObjectKind kind_of(Location location, const std::string& name) {
  const LibraryLock lock;
#if H5_VERSION_GE(1, 12, 0)
  H5O_info2_t info{};
  const auto get_info = H5Oget_info_by_name3;
#else
  H5O_info_t info{};
  const auto get_info = H5Oget_info_by_name2;
#endif
  if (get_info(location.id(), name.c_str(), &info, H5O_INFO_BASIC, H5P_DEFAULT) < 0) {
    cannot_read(name_of(location, name));
  }
  if (info.type == H5O_TYPE_GROUP) return ObjectKind::group;
  return info.type == H5O_TYPE_DATASET ? ObjectKind::dataset : ObjectKind::other;
}

Group open_group(Location location, const std::string& name) {
  const LibraryLock lock;
  Group group(H5Gopen2(location.id(), name.c_str(), H5P_DEFAULT));
  if (!group) cannot_read(name_of(location, name));
  return group;
}

std::vector<std::string> children(Location location, const std::string& group,
                                  std::size_t max_children) {
  const LibraryLock lock;
  const Group opened = open_group(location, group);
  struct Collected {
    std::vector<std::string> names;
    std::size_t limit;
    std::exception_ptr failure;  // must not pass through the library
  } collected{.names = {}, .limit = max_children, .failure = {}};
  const auto collect = [](hid_t, const char* name, const H5L_info_t*,
                          void* out) noexcept -> herr_t {
    auto& result = *static_cast<Collected*>(out);
    if (result.names.size() == result.limit) return 1;
    try {
      result.names.emplace_back(name);
    } catch (...) {
      result.failure = std::current_exception();
      return 1;
    }
    return 0;
  };
  const PropertyList creation(H5Gget_create_plist(opened.get()));
  unsigned order = 0;
  H5Pget_link_creation_order(creation.get(), &order);
  const H5_index_t index =
      (order & H5P_CRT_ORDER_TRACKED) != 0 ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
  const herr_t result = H5Literate(opened.get(), index, H5_ITER_INC, nullptr, collect, &collected);
  if (collected.failure) std::rethrow_exception(collected.failure);
  if (result < 0) cannot_read(name_of(location, group));
  if (result > 0) {
    fail(ExitStatus::bad_input, "{} holds more than {} objects (that is the limit); check the file",
         name_of(location, group), max_children);
  }
  return std::move(collected.names);
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
