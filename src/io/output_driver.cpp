#include "output_driver.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>

#if H5_VERSION_GE(1, 14, 0)
#include <H5FDdevelop.h>
#endif

namespace lockstep::h5 {
namespace {

constexpr std::uint64_t magic = 0x6c6f636b73746570;  // "lockstep"

struct OutputFile {
  H5FD_t base{};  ///< the library's part; must be the first member
  int descriptor = -1;
  int error = 0;          ///< errno of the first failure
  int* report = nullptr;  ///< receives `error`, also of the close; null: not wanted
  haddr_t end_of_address = 0;
  haddr_t end_of_file = 0;
  dev_t device = 0;
  ino_t inode = 0;
};

/// Finds the driver's file from the library's handle.
struct DriverInfo {
  std::uint64_t magic = h5::magic;
  OutputFile* file = nullptr;
  int descriptor = -1;
};

OutputFile& self(H5FD_t* file) {
  return *reinterpret_cast<OutputFile*>(file);
}
const OutputFile& self(const H5FD_t* file) {
  return *reinterpret_cast<const OutputFile*>(file);
}

void keep_error(OutputFile& file, int error) {
  if (file.error == 0) file.error = error;
  if (file.report != nullptr && *file.report == 0) *file.report = file.error;
}

void* copy_info(const void* info) {
  void* copy = std::malloc(sizeof(DriverInfo));  // HDF5 frees it with free_info
  if (copy != nullptr) std::memcpy(copy, info, sizeof(DriverInfo));
  return copy;
}

herr_t free_info(void* info) {
  std::free(info);
  return 0;
}

void* info_of(H5FD_t* file) {
  const DriverInfo info{.file = &self(file)};
  return copy_info(&info);
}

H5FD_t* open_output(const char* /*name*/, unsigned flags, hid_t access, haddr_t /*max_address*/) {
  const auto* const info = static_cast<const DriverInfo*>(H5Pget_driver_info(access));
  Descriptor descriptor(::fcntl(info->descriptor, F_DUPFD_CLOEXEC, 0));
  struct stat status {};
  if (!descriptor || ((flags & H5F_ACC_TRUNC) != 0 && ::ftruncate(descriptor.get(), 0) != 0) ||
      ::fstat(descriptor.get(), &status) != 0) {
    return nullptr;
  }
  // The library is C, so no exception may pass through it.
  std::unique_ptr<OutputFile> file(new (std::nothrow) OutputFile);
  if (!file) {
    errno = ENOMEM;
    return nullptr;
  }
  file->descriptor = descriptor.release();
  file->end_of_file = static_cast<haddr_t>(status.st_size);
  file->device = status.st_dev;
  file->inode = status.st_ino;
  return &file.release()->base;
}

herr_t close_file(H5FD_t* base) {
  const std::unique_ptr<OutputFile> file(&self(base));
  // Network file systems may report a failed write only here.
  if (::close(file->descriptor) != 0) keep_error(*file, errno);
  return 0;
}

int compare(const H5FD_t* left, const H5FD_t* right) {
  const OutputFile& a = self(left);
  const OutputFile& b = self(right);
  if (a.device != b.device) return a.device < b.device ? -1 : 1;
  if (a.inode != b.inode) return a.inode < b.inode ? -1 : 1;
  return 0;
}

herr_t query(const H5FD_t* /*file*/, unsigned long* flags) {
  *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_ACCUMULATE_METADATA | H5FD_FEAT_DATA_SIEVE |
           H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DEFAULT_VFD_COMPATIBLE;
  return 0;
}

haddr_t get_end_of_address(const H5FD_t* file, H5FD_mem_t /*type*/) {
  return self(file).end_of_address;
}
herr_t set_end_of_address(H5FD_t* file, H5FD_mem_t /*type*/, haddr_t address) {
  self(file).end_of_address = address;
  return 0;
}
haddr_t get_end_of_file(const H5FD_t* file, H5FD_mem_t /*type*/) {
  return self(file).end_of_file;
}

herr_t read(H5FD_t* base, H5FD_mem_t /*type*/, hid_t /*transfer*/, haddr_t address, size_t size,
            void* buffer) {
  const OutputFile& file = self(base);
  auto* bytes = static_cast<char*>(buffer);
  while (size > 0) {
    const ssize_t count = ::pread(file.descriptor, bytes, size, static_cast<off_t>(address));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    bytes += count;
    size -= static_cast<size_t>(count);
    address += static_cast<haddr_t>(count);
  }
  std::memset(bytes, 0, size);  // the library expects zeros past the end
  return 0;
}

herr_t write(H5FD_t* base, H5FD_mem_t /*type*/, hid_t /*transfer*/, haddr_t address, size_t size,
             const void* buffer) {
  OutputFile& file = self(base);
  file.end_of_file = std::max(file.end_of_file, address + size);
  const auto* bytes = static_cast<const char*>(buffer);
  while (size > 0 && file.error == 0) {
    const ssize_t count = ::pwrite(file.descriptor, bytes, size, static_cast<off_t>(address));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      keep_error(file, count < 0 ? errno : ENOSPC);
      break;
    }
    bytes += count;
    size -= static_cast<size_t>(count);
    address += static_cast<haddr_t>(count);
  }
  return 0;
}

herr_t truncate(H5FD_t* base, hid_t /*transfer*/, hbool_t /*closing*/) {
  OutputFile& file = self(base);
  if (file.end_of_file == file.end_of_address) return 0;
  if (file.error == 0 &&
      ::ftruncate(file.descriptor, static_cast<off_t>(file.end_of_address)) != 0) {
    keep_error(file, errno);
  }
  file.end_of_file = file.end_of_address;
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t driver{};
#if H5_VERSION_GE(1, 14, 0)
  driver.version = H5FD_CLASS_VERSION;
  driver.value = 512;  // first number available to applications
#endif
  driver.name = "lockstep-output";
  driver.maxaddr = static_cast<haddr_t>(std::numeric_limits<off_t>::max());
  driver.fc_degree = H5F_CLOSE_STRONG;
  driver.fapl_size = sizeof(DriverInfo);
  driver.fapl_get = info_of;
  driver.fapl_copy = copy_info;
  driver.fapl_free = free_info;
  driver.open = open_output;
  driver.close = close_file;
  driver.cmp = compare;
  driver.query = query;
  driver.get_eoa = get_end_of_address;
  driver.set_eoa = set_end_of_address;
  driver.get_eof = get_end_of_file;
  driver.read = read;
  driver.write = write;
  driver.truncate = truncate;
  const H5FD_mem_t map[H5FD_MEM_NTYPES] = H5FD_FLMAP_DICHOTOMY;
  std::copy(std::begin(map), std::end(map), std::begin(driver.fl_map));
  return driver;
}

OutputFile* output_of(hid_t object) {
  const File file(H5Iget_file_id(object));
  const PropertyList access(H5Fget_access_plist(file.get()));
  const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(access.get()));
  return info != nullptr && info->magic == magic ? info->file : nullptr;
}

}  // namespace

void use_output_driver(const PropertyList& access, const Descriptor& file) {
  // Register once and never unregister: HDF5 1.10 reads the driver's class after it drops a closing
  // file's reference, so a file must never hold the last reference.
  static const H5FD_class_t description = driver_class();
  static const hid_t driver = H5FDregister(&description);
  const DriverInfo info{.descriptor = file.get()};
  H5Pset_driver(access.get(), driver, &info);
}

int output_error(hid_t object) {
  const OutputFile* file = output_of(object);
  return file != nullptr ? file->error : 0;
}

int close_output(File file) {
  OutputFile* output = output_of(file.get());
  int error = 0;
  if (output != nullptr) {
    error = output->error;
    output->report = &error;
  }
  const bool flushed = H5Fflush(file.get(), H5F_SCOPE_GLOBAL) >= 0;
  const bool closed = H5Fclose(file.release()) >= 0;
  return error != 0 || (flushed && closed) ? error : EIO;
}

}  // namespace lockstep::h5
