#include "hdf5_detail.hpp"

#include <array>
#include <limits>
#include <type_traits>

namespace lockstep::h5 {
namespace {

constexpr std::uint64_t max_bytes = std::uint64_t{1} << 62;

Layout layout_of(const PropertyList& creation) {
  switch (H5Pget_layout(creation.get())) {
    case H5D_CONTIGUOUS:
      return Layout::contiguous;
    case H5D_CHUNKED:
      return Layout::chunked;
    case H5D_COMPACT:
      return Layout::compact;
    default:
      return Layout::other;
  }
}

std::vector<std::string> filters_of(const PropertyList& creation) {
  std::vector<std::string> names;
  const int count = std::max(0, H5Pget_nfilters(creation.get()));
  for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
    std::array<char, 64> name{};
    unsigned flags = 0;
    std::size_t values = 0;
    H5Pget_filter2(creation.get(), i, &flags, &values, nullptr, name.size() - 1, name.data(),
                   nullptr);
    names.emplace_back(name.data());
  }
  return names;
}

/// Selects rows of the outermost axis; checks that they exist and contain `values` elements.
Dataspace select_rows(const Dataset& dataset, std::uint64_t first, std::uint64_t count,
                      std::uint64_t values, ExitStatus status) {
  const std::string object = name_of(dataset.get());
  Dataspace space(H5Dget_space(dataset.get()));
  if (!space) cannot_read(object);
  const Extent extent = extent_of(space, object);
  if (extent.dims.empty() || first > extent.dims[0] || count > extent.dims[0] - first) {
    fail(status, "{} has {} rows, not rows {} to {} (its shape has {} axes); check the file",
         object, extent.dims.empty() ? 0 : extent.dims[0], first, first + count,
         extent.dims.size());
  }
  const std::uint64_t row = extent.dims[0] == 0 ? 0 : extent.elements / extent.dims[0];
  if (count * row != values) {
    fail(status, "{} rows of {} are {} values, not {} (its rows have {}); check the file", count,
         object, count * row, values, row);
  }
  std::vector<hsize_t> start(extent.dims.size(), 0);
  std::vector<hsize_t> size(extent.dims.begin(), extent.dims.end());
  start[0] = first;
  size[0] = count;
  if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(),
                          nullptr) < 0) {
    cannot_read(object);
  }
  return space;
}

Dataspace flat(std::uint64_t values) {
  const hsize_t size = values;
  return Dataspace(H5Screate_simple(1, &size, nullptr));
}

template <typename T>
void check_type(const DatasetInfo& info, const std::string& object) {
  const TypeClass wanted = std::is_floating_point_v<T> ? TypeClass::floating : TypeClass::integer;
  if (info.type != wanted) {
    fail(ExitStatus::bad_input,
         "{} is {}, not {} (its type cannot be read as that); write it again", object,
         to_string(info), wanted == TypeClass::integer ? "integers" : "floating point");
  }
}

/// A damaged header can claim any shape, so check before allocating that the file can hold the
/// values.
void check_fits_file(const Dataset& dataset, const DatasetInfo& info, const std::string& object) {
  const File file(H5Iget_file_id(dataset.get()));
  hsize_t file_bytes = 0;
  if (!file || H5Fget_filesize(file.get(), &file_bytes) < 0) cannot_read(object);
  const std::uint64_t bytes = info.elements * info.element_size;
  if (info.layout == Layout::contiguous) {
    if (bytes == 0 ||
        (info.offset && *info.offset <= file_bytes && bytes <= file_bytes - *info.offset))
      return;
  } else {
    // Deflate, the best compressor of the usual filters, reaches a factor of 1032.
    constexpr std::uint64_t best_compression = 1032;
    if (bytes / best_compression <= file_bytes) return;
  }
  fail(ExitStatus::bad_input,
       "{} is {}, which is not in the file ({} bytes); it is truncated or was never filled", object,
       to_string(info), file_bytes);
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

Extent extent_of(const Dataspace& space, const std::string& object) {
  const H5S_class_t kind = H5Sget_simple_extent_type(space.get());
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if ((kind != H5S_SIMPLE && kind != H5S_SCALAR) || rank < 0) {
    fail(ExitStatus::bad_input, "{} has no values (its data space is empty); write it again",
         object);
  }
  std::vector<hsize_t> dims(static_cast<std::size_t>(rank));
  if (rank > 0 && H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr) < 0)
    cannot_read(object);
  Extent extent;
  extent.dims.assign(dims.begin(), dims.end());
  std::uint64_t nonzero_product = 1;  // a zero axis must not hide an overflow
  for (const std::uint64_t dim : extent.dims) {
    if (dim != 0 && nonzero_product > max_bytes / dim) {
      fail(ExitStatus::bad_input,
           "the shape of {} overflows (more than 2^62 values); it is damaged", object);
    }
    nonzero_product *= dim != 0 ? dim : 1;
    extent.elements *= dim;
  }
  return extent;
}

ElementType element_type_of(const Datatype& type) {
  ElementType result;
  const H5T_class_t kind = H5Tget_class(type.get());
  result.size = H5Tget_size(type.get());
  if (kind == H5T_INTEGER) result.type = TypeClass::integer;
  if (kind == H5T_FLOAT) result.type = TypeClass::floating;
  if (result.type == TypeClass::other) return result;
  result.is_signed = kind == H5T_FLOAT || H5Tget_sign(type.get()) == H5T_SGN_2;
  result.little_endian = result.size == 1 || H5Tget_order(type.get()) == H5T_ORDER_LE;
  return result;
}

std::string to_string(const ElementType& type) {
  if (type.type == TypeClass::other) return "of another type";
  const char* name = type.type == TypeClass::floating ? "float" : type.is_signed ? "int" : "uint";
  // 64-bit, since a hostile size in bits could overflow a narrower type.
  return fmt::format("{}{}{}", name, std::uint64_t{type.size} * 8,
                     type.little_endian ? "" : " big-endian");
}

std::string to_string(const DatasetInfo& info) {
  std::string shape;
  for (const std::uint64_t dim : info.dims)
    shape += fmt::format("{}{}", shape.empty() ? "" : "x", dim);
  return fmt::format("{} {}", shape.empty() ? "scalar" : shape,
                     to_string(ElementType{.type = info.type,
                                           .size = info.element_size,
                                           .is_signed = info.is_signed,
                                           .little_endian = info.little_endian}));
}

Dataset open_dataset(Location location, const std::string& name) {
  const LibraryLock lock;
  if (!exists(location, name)) {
    fail(ExitStatus::bad_input,
         "{} is missing (there is no such dataset); check what wrote the file",
         name_of(location, name));
  }
  if (kind_of(location, name) != ObjectKind::dataset) {
    fail(ExitStatus::bad_input,
         "{} is not a dataset (a group or type is there); check what wrote the file",
         name_of(location, name));
  }
  Dataset dataset(H5Dopen2(location.id(), name.c_str(), H5P_DEFAULT));
  if (!dataset) cannot_read(name_of(location, name));
  return dataset;
}

DatasetInfo describe(const Dataset& dataset) {
  const LibraryLock lock;
  const std::string object = name_of(dataset.get());
  const Dataspace space(H5Dget_space(dataset.get()));
  const Datatype type(H5Dget_type(dataset.get()));
  const PropertyList creation(H5Dget_create_plist(dataset.get()));
  if (!space || !type || !creation) cannot_read(object);
  const Extent extent = extent_of(space, object);
  const ElementType element = element_type_of(type);
  DatasetInfo info{.dims = extent.dims,
                   .elements = extent.elements,
                   .type = element.type,
                   .element_size = element.size,
                   .is_signed = element.is_signed,
                   .little_endian = element.little_endian,
                   .layout = layout_of(creation),
                   .filters = filters_of(creation),
                   .offset = std::nullopt};
  if (info.element_size == 0 || info.elements > max_bytes / info.element_size) {
    fail(ExitStatus::bad_input, "the shape of {} overflows ({}); it is damaged", object,
         to_string(info));
  }
  if (info.layout == Layout::contiguous && H5Pget_external_count(creation.get()) <= 0) {
    const haddr_t offset = H5Dget_offset(dataset.get());
    if (offset != HADDR_UNDEF) info.offset = offset;
  }
  H5Eclear2(H5E_DEFAULT);
  return info;
}

DatasetInfo describe(Location location, const std::string& name) {
  const LibraryLock lock;
  return describe(open_dataset(location, name));
}

template <typename T>
std::vector<T> read_values(Location location, const std::string& name, std::uint64_t max_elements) {
  const LibraryLock lock;
  const Dataset dataset = open_dataset(location, name);
  const DatasetInfo info = describe(dataset);
  const std::string object = name_of(location, name);
  check_type<T>(info, object);
  if (info.elements > max_elements) {
    fail(ExitStatus::bad_input,
         "{} is {}, more than {} values (the most expected there); check the file", object,
         to_string(info), max_elements);
  }
  check_fits_file(dataset, info, object);
  std::vector<T> values(info.elements);
  if (H5Dread(dataset.get(), native_type<T>(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    cannot_read(object);
  }
  return values;
}

template <typename T>
void read_rows(const Dataset& dataset, std::uint64_t first, std::uint64_t count,
               std::span<T> values) {
  const LibraryLock lock;
  check_type<T>(describe(dataset), name_of(dataset.get()));
  const Dataspace rows = select_rows(dataset, first, count, values.size(), ExitStatus::bad_input);
  if (values.empty()) return;
  if (H5Dread(dataset.get(), native_type<T>(), flat(values.size()).get(), rows.get(), H5P_DEFAULT,
              values.data()) < 0) {
    cannot_read(name_of(dataset.get()));
  }
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
  Dataset dataset(H5Dcreate2(location.id(), name.c_str(), file_type<T>(), space.get(), H5P_DEFAULT,
                             creation.get(), H5P_DEFAULT));
  if (!space || !dataset) cannot_write(name_of(location, name));
  return dataset;
}

template <typename T>
void write_rows(const Dataset& dataset, std::uint64_t first, std::uint64_t count,
                std::span<const T> values) {
  const LibraryLock lock;
  const Dataspace rows = select_rows(dataset, first, count, values.size(), ExitStatus::internal);
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
  template std::vector<T> read_values<T>(Location, const std::string&, std::uint64_t);            \
  template void read_rows<T>(const Dataset&, std::uint64_t, std::uint64_t, std::span<T>);         \
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
