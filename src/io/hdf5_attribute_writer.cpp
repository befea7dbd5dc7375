#include "hdf5_library.hpp"

#include <algorithm>

namespace lockstep::h5 {
namespace {

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

}  // namespace

template <typename T>
void write_number(Location location, const std::string& name, T value) {
  const LibraryLock lock;
  write(location, name, Datatype(H5Tcopy(type_of<T>())), Dataspace(H5Screate(H5S_SCALAR)), &value);
}
template void write_number(Location, const std::string&, std::int64_t);
template void write_number(Location, const std::string&, std::uint64_t);
template void write_number(Location, const std::string&, std::uint32_t);
template void write_number(Location, const std::string&, double);

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

}  // namespace lockstep::h5
