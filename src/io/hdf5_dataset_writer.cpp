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

Dataspace flat(std::uint64_t values) {
  const hsize_t size = values;
  return Dataspace(H5Screate_simple(1, &size, nullptr));
}

}  // namespace

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
  check_written(dataset.get(), H5Dwrite(dataset.get(), type_of<T>(), flat(values.size()).get(),
                                        rows.get(), H5P_DEFAULT, values.data()) >= 0);
}

#define LOCKSTEP_H5_NUMBER(T, type)                                   \
  template <>                                                         \
  hid_t type_of<T>() noexcept {                                       \
    return type;                                                      \
  }                                                                   \
  template Dataset create_dataset<T>(Location, const std::string&,    \
                                     std::span<const std::uint64_t>); \
  template void write_rows<T>(const Dataset&, std::uint64_t, std::uint64_t, std::span<const T>);
LOCKSTEP_H5_NUMBER(std::int8_t, H5T_STD_I8LE)
LOCKSTEP_H5_NUMBER(std::uint8_t, H5T_STD_U8LE)
LOCKSTEP_H5_NUMBER(std::int16_t, H5T_STD_I16LE)
LOCKSTEP_H5_NUMBER(std::uint16_t, H5T_STD_U16LE)
LOCKSTEP_H5_NUMBER(std::int32_t, H5T_STD_I32LE)
LOCKSTEP_H5_NUMBER(std::uint32_t, H5T_STD_U32LE)
LOCKSTEP_H5_NUMBER(std::int64_t, H5T_STD_I64LE)
LOCKSTEP_H5_NUMBER(std::uint64_t, H5T_STD_U64LE)
LOCKSTEP_H5_NUMBER(float, H5T_IEEE_F32LE)
LOCKSTEP_H5_NUMBER(double, H5T_IEEE_F64LE)
#undef LOCKSTEP_H5_NUMBER

}  // namespace lockstep::h5
