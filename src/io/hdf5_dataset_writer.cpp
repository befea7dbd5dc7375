#include "hdf5_library.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace lockstep::h5 {
namespace {

/// Selects rows of the outermost axis. Error(internal) unless they exist and hold `values`
/// elements.
Dataspace select_rows(const Dataset& dataset, std::uint64_t first, std::uint64_t count,
                      std::uint64_t values) {
  const std::string object = name_of(dataset.get());
  Dataspace space(H5Dget_space(dataset.get()));
  std::vector<hsize_t> size(
      static_cast<std::size_t>(std::max(0, H5Sget_simple_extent_ndims(space.get()))));
  if (size.empty() || H5Sget_simple_extent_dims(space.get(), size.data(), nullptr) < 0) {
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
  std::vector<hsize_t> start(size.size(), 0);
  start[0] = first;
  size[0] = count;
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(),
                          nullptr) < 0) {
    cannot_write(object);
  }
  return space;
}

Dataspace flat(std::uint64_t values) {
  const hsize_t size = values;
  return Dataspace(H5Screate_simple(1, &size, nullptr));
}

}  // namespace

#define LOCKSTEP_H5_TYPE(T, native, file) \
  template <>                             \
  hid_t native_type<T>() noexcept {       \
    return native;                        \
  }                                       \
  template <>                             \
  hid_t file_type<T>() noexcept {         \
    return file;                          \
  }
LOCKSTEP_H5_TYPE(std::int8_t, H5T_NATIVE_INT8, H5T_STD_I8LE)
LOCKSTEP_H5_TYPE(std::uint8_t, H5T_NATIVE_UINT8, H5T_STD_U8LE)
LOCKSTEP_H5_TYPE(std::int16_t, H5T_NATIVE_INT16, H5T_STD_I16LE)
LOCKSTEP_H5_TYPE(std::uint16_t, H5T_NATIVE_UINT16, H5T_STD_U16LE)
LOCKSTEP_H5_TYPE(std::int32_t, H5T_NATIVE_INT32, H5T_STD_I32LE)
LOCKSTEP_H5_TYPE(std::uint32_t, H5T_NATIVE_UINT32, H5T_STD_U32LE)
LOCKSTEP_H5_TYPE(std::int64_t, H5T_NATIVE_INT64, H5T_STD_I64LE)
LOCKSTEP_H5_TYPE(std::uint64_t, H5T_NATIVE_UINT64, H5T_STD_U64LE)
LOCKSTEP_H5_TYPE(float, H5T_NATIVE_FLOAT, H5T_IEEE_F32LE)
LOCKSTEP_H5_TYPE(double, H5T_NATIVE_DOUBLE, H5T_IEEE_F64LE)
#undef LOCKSTEP_H5_TYPE

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
  Dataset dataset(H5Dcreate2(location.id(), name.c_str(), file_type<T>(), space.get(), H5P_DEFAULT,
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
  check_written(dataset.get(), H5Dwrite(dataset.get(), native_type<T>(), flat(values.size()).get(),
                                        rows.get(), H5P_DEFAULT, values.data()) >= 0);
}

template <typename T>
Dataset write_dataset(Location location, const std::string& name,
                      std::span<const std::uint64_t> dims, std::span<const T> values) {
  const LibraryLock lock;
  Dataset dataset = create_dataset<T>(location, name, dims);
  std::uint64_t elements = 1;
  for (const std::uint64_t dim : dims) elements *= dim;
  if (elements != values.size()) {
    fail(ExitStatus::internal, "{} has {} values, not {} (caller's shape is wrong); report this",
         name_of(location, name), values.size(), elements);
  }
  if (!values.empty()) {
    check_written(dataset.get(), H5Dwrite(dataset.get(), native_type<T>(), H5S_ALL, H5S_ALL,
                                          H5P_DEFAULT, values.data()) >= 0);
  }
  return dataset;
}

#define LOCKSTEP_H5_INSTANTIATE(T)                                                                \
  template Dataset create_dataset<T>(Location, const std::string&,                                \
                                     std::span<const std::uint64_t>);                             \
  template void write_rows<T>(const Dataset&, std::uint64_t, std::uint64_t, std::span<const T>);  \
  template Dataset write_dataset<T>(Location, const std::string&, std::span<const std::uint64_t>, \
                                    std::span<const T>);
LOCKSTEP_H5_INSTANTIATE(std::int8_t)
LOCKSTEP_H5_INSTANTIATE(std::uint8_t)
LOCKSTEP_H5_INSTANTIATE(std::int16_t)
LOCKSTEP_H5_INSTANTIATE(std::uint16_t)
LOCKSTEP_H5_INSTANTIATE(std::int32_t)
LOCKSTEP_H5_INSTANTIATE(std::uint32_t)
LOCKSTEP_H5_INSTANTIATE(std::int64_t)
LOCKSTEP_H5_INSTANTIATE(std::uint64_t)
LOCKSTEP_H5_INSTANTIATE(float)
LOCKSTEP_H5_INSTANTIATE(double)
#undef LOCKSTEP_H5_INSTANTIATE

}  // namespace lockstep::h5
