#include "hostile_hdf5.hpp"

#include <algorithm>
#include <array>

namespace lockstep::fuzz {
namespace {

constexpr std::size_t max_written_bytes = std::size_t{1} << 16;

/// Extents at which behaviour changes: powers that overflow products, limits of the readers.
constexpr std::array<std::uint64_t, 20> extents{0,
                                                1,
                                                2,
                                                3,
                                                4,
                                                5,
                                                8,
                                                28,
                                                255,
                                                1000,
                                                65535,
                                                65536,
                                                65537,
                                                std::uint64_t{1} << 28,
                                                (std::uint64_t{1} << 31) - 1,
                                                std::uint64_t{1} << 31,
                                                std::uint64_t{1} << 32,
                                                std::uint64_t{1} << 48,
                                                std::uint64_t{1} << 61,
                                                (std::uint64_t{1} << 63) - 1};

h5::Datatype copy(hid_t type) {
  return h5::Datatype(H5Tcopy(type));
}

h5::Datatype text_type(FuzzedDataProvider& bytes) {
  h5::Datatype type = copy(H5T_C_S1);
  const std::size_t size = bytes.ConsumeIntegralInRange<std::size_t>(0, 40);
  H5Tset_size(type.get(), size == 0 ? H5T_VARIABLE : size);
  H5Tset_strpad(type.get(),
                bytes.PickValueInArray({H5T_STR_NULLTERM, H5T_STR_NULLPAD, H5T_STR_SPACEPAD}));
  if (bytes.ConsumeBool()) H5Tset_cset(type.get(), H5T_CSET_UTF8);
  return type;
}

h5::Datatype number_type(FuzzedDataProvider& bytes) {
  static const std::array<hid_t, 15> kinds{
      H5T_STD_U8LE,  H5T_STD_I8LE,  H5T_STD_U16BE,  H5T_STD_I16LE,  H5T_STD_U32LE,
      H5T_STD_I32LE, H5T_STD_U32BE, H5T_STD_I32BE,  H5T_STD_U64LE,  H5T_STD_I64LE,
      H5T_STD_U64BE, H5T_STD_I64BE, H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_IEEE_F32BE};
  return copy(kinds[bytes.ConsumeIntegralInRange<std::size_t>(0, kinds.size() - 1)]);
}

h5::Datatype any_type(FuzzedDataProvider& bytes) {
  switch (bytes.ConsumeIntegralInRange(0, 15)) {
    case 1:
      return text_type(bytes);
    case 2: {  // an integer of any width and precision
      h5::Datatype type = copy(bytes.ConsumeBool() ? H5T_STD_I8LE : H5T_STD_U8BE);
      H5Tset_size(type.get(), bytes.ConsumeIntegralInRange<std::size_t>(1, 16));
      H5Tset_precision(type.get(), bytes.ConsumeIntegralInRange<std::size_t>(1, 64));
      H5Tset_offset(type.get(), bytes.ConsumeIntegralInRange<std::size_t>(0, 8));
      return type;
    }
    case 3: {
      h5::Datatype type(H5Tcreate(H5T_COMPOUND, 12));
      H5Tinsert(type.get(), "a", 0, H5T_STD_U32LE);
      H5Tinsert(type.get(), "b", 4, H5T_IEEE_F64LE);
      return type;
    }
    case 4:
      return h5::Datatype(H5Tvlen_create(H5T_STD_U8LE));
    case 5: {
      h5::Datatype type(H5Tenum_create(H5T_STD_I32LE));
      const int value = 1;
      H5Tenum_insert(type.get(), "one", &value);
      return type;
    }
    case 6: {
      const hsize_t extent = 3;
      return h5::Datatype(H5Tarray_create2(H5T_STD_U8LE, 1, &extent));
    }
    case 7:
      return copy(H5T_STD_B8LE);
    case 8:
      return h5::Datatype(H5Tcreate(H5T_OPAQUE, bytes.ConsumeIntegralInRange<std::size_t>(1, 9)));
    case 9:
      return copy(H5T_STD_REF_OBJ);
    case 10: {  // half precision
      h5::Datatype type = copy(H5T_IEEE_F32LE);
      H5Tset_fields(type.get(), 15, 10, 5, 0, 10);
      H5Tset_size(type.get(), 2);
      H5Tset_ebias(type.get(), 15);
      return type;
    }
    default:
      return number_type(bytes);
  }
}

std::uint64_t any_extent(FuzzedDataProvider& bytes) {
  const auto place = bytes.ConsumeIntegralInRange<std::size_t>(0, extents.size());
  return place < extents.size() ? extents[place] : bytes.ConsumeIntegral<std::uint32_t>();
}

struct Space {
  h5::Dataspace handle;
  std::vector<hsize_t> dims;
  std::uint64_t elements = 1;  ///< saturates at max_written_bytes
};

Space any_space(FuzzedDataProvider& bytes, bool small) {
  Space space;
  const int rank = bytes.ConsumeIntegralInRange(-1, 9);
  if (rank <= 0) {
    if (rank < 0) space.elements = 0;
    space.handle = h5::Dataspace(H5Screate(rank < 0 ? H5S_NULL : H5S_SCALAR));
    return space;
  }
  for (int axis = 0; axis < rank; ++axis) {
    const std::uint64_t extent =
        small ? bytes.ConsumeIntegralInRange<std::uint64_t>(0, 9) : any_extent(bytes);
    space.dims.push_back(extent);
    const bool fits = extent == 0 || space.elements <= max_written_bytes / extent;
    space.elements = fits ? space.elements * extent : max_written_bytes + 1;
  }
  space.handle = h5::Dataspace(H5Screate_simple(rank, space.dims.data(), nullptr));
  return space;
}

/// Values of the file's type. In types with pointers the library would follow them.
std::vector<std::uint8_t> any_values(const h5::Datatype& type, std::uint64_t elements,
                                     FuzzedDataProvider& bytes) {
  const std::size_t size = H5Tget_size(type.get()) * elements;
  std::vector<std::uint8_t> values = bytes.ConsumeBytes<std::uint8_t>(size);
  values.resize(size, bytes.ConsumeBool() ? 0xFF : 0);
  return values;
}

bool holds_pointers(const h5::Datatype& type) {
  return H5Tis_variable_str(type.get()) > 0 || H5Tget_class(type.get()) == H5T_VLEN ||
         H5Tget_class(type.get()) == H5T_REFERENCE;
}

void set_layout(const h5::PropertyList& creation, const Space& space, FuzzedDataProvider& bytes) {
  const auto rank = static_cast<int>(space.dims.size());
  switch (bytes.ConsumeIntegralInRange(0, 5)) {
    case 1:
      H5Pset_layout(creation.get(), H5D_COMPACT);
      break;
    case 2:
    case 3: {
      if (rank == 0) break;
      std::vector<hsize_t> chunk;
      for (const hsize_t extent : space.dims) chunk.push_back(std::clamp<hsize_t>(extent, 1, 4));
      H5Pset_chunk(creation.get(), rank, chunk.data());
      if (bytes.ConsumeBool()) H5Pset_deflate(creation.get(), 1);
      if (bytes.ConsumeBool()) H5Pset_fletcher32(creation.get());
      break;
    }
    case 4:
      H5Pset_external(creation.get(), bytes.ConsumeBool() ? "absent" : "/dev/zero",
                      bytes.ConsumeIntegralInRange(0, 64), H5F_UNLIMITED);
      break;
    default:
      if (space.elements <= max_written_bytes && bytes.ConsumeBool()) {
        H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY);
      }
  }
}

void put_dataset(const h5::File& file, const std::string& name, FuzzedDataProvider& bytes) {
  const h5::Datatype type = any_type(bytes);
  const Space space = any_space(bytes, bytes.ConsumeBool());
  const h5::PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
  set_layout(creation, space, bytes);
  const h5::Dataset dataset(H5Dcreate2(file.get(), name.c_str(), type.get(), space.handle.get(),
                                       H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  if (!dataset || space.elements > max_written_bytes / 16 || holds_pointers(type)) return;
  const auto values = any_values(type, space.elements, bytes);
  const bool external = H5Pget_external_count(creation.get()) > 0;
  if (!values.empty() && !external) {
    H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  }
}

void put_attribute(const h5::File& file, const AttributePlace& place, FuzzedDataProvider& bytes) {
  const h5::Datatype type = bytes.ConsumeBool() ? any_type(bytes) : text_type(bytes);
  const Space space = any_space(bytes, true);
  if (space.elements > max_written_bytes / 16) return;
  const h5::Attribute attribute(
      H5Acreate_by_name(file.get(), place.object.c_str(), place.name.c_str(), type.get(),
                        space.handle.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute) return;
  if (H5Tis_variable_str(type.get()) > 0) {
    std::string text = bytes.ConsumeRandomLengthString(64);
    std::vector<char*> texts(space.elements, text.data());
    if (!texts.empty() && bytes.ConsumeBool()) texts[0] = nullptr;
    if (!texts.empty()) H5Awrite(attribute.get(), type.get(), texts.data());
    return;
  }
  if (holds_pointers(type)) return;
  const auto values = any_values(type, space.elements, bytes);
  if (!values.empty()) H5Awrite(attribute.get(), type.get(), values.data());
}

/// The same values in chunks: valid, but read through the library.
void rewrite_chunked(const h5::File& file, const std::string& name, FuzzedDataProvider& bytes) {
  std::vector<std::uint8_t> values;
  h5::Datatype type;
  Space space;
  {
    const h5::Dataset old(H5Dopen2(file.get(), name.c_str(), H5P_DEFAULT));
    if (!old) return;
    type = h5::Datatype(H5Dget_type(old.get()));
    space.handle = h5::Dataspace(H5Dget_space(old.get()));
    const hssize_t elements = H5Sget_simple_extent_npoints(space.handle.get());
    if (elements <= 0 || elements > 4096 || holds_pointers(type)) return;
    space.dims.resize(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space.handle.get())));
    H5Sget_simple_extent_dims(space.handle.get(), space.dims.data(), nullptr);
    values.resize(static_cast<std::size_t>(elements) * H5Tget_size(type.get()));
    H5Dread(old.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  }
  if (space.dims.empty()) return;
  H5Ldelete(file.get(), name.c_str(), H5P_DEFAULT);
  const h5::PropertyList creation(H5Pcreate(H5P_DATASET_CREATE));
  const std::vector<hsize_t> chunk(space.dims.size(), 1);
  H5Pset_chunk(creation.get(), static_cast<int>(chunk.size()), chunk.data());
  if (bytes.ConsumeBool()) H5Pset_deflate(creation.get(), 1);
  const h5::Dataset dataset(H5Dcreate2(file.get(), name.c_str(), type.get(), space.handle.get(),
                                       H5P_DEFAULT, creation.get(), H5P_DEFAULT));
  if (dataset) {
    H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  }
}

void replace_object(const h5::File& file, const std::string& name, FuzzedDataProvider& bytes) {
  const int kind = bytes.ConsumeIntegralInRange(0, 15);
  if (kind >= 12) {
    rewrite_chunked(file, name, bytes);
    return;
  }
  if (H5Lexists(file.get(), name.c_str(), H5P_DEFAULT) > 0) {
    H5Ldelete(file.get(), name.c_str(), H5P_DEFAULT);
  }
  switch (kind) {
    case 0:
      return;
    case 1:
      H5Lcreate_soft("/nowhere", file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
      return;
    case 2:  // a link to itself
      H5Lcreate_soft(name.c_str(), file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
      return;
    case 3:
      H5Lcreate_external("absent.h5", "/images", file.get(), name.c_str(), H5P_DEFAULT,
                         H5P_DEFAULT);
      return;
    case 4: {
      const h5::Group group(
          H5Gcreate2(file.get(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
      return;
    }
    case 5: {
      const h5::Datatype type = copy(H5T_STD_U8LE);
      H5Tcommit2(file.get(), name.c_str(), type.get(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
      return;
    }
    default:
      put_dataset(file, name, bytes);
  }
}

void replace_attribute(const h5::File& file, const AttributePlace& place,
                       FuzzedDataProvider& bytes) {
  H5Adelete_by_name(file.get(), place.object.c_str(), place.name.c_str(), H5P_DEFAULT);
  if (bytes.ConsumeIntegralInRange(0, 7) > 0) put_attribute(file, place, bytes);
}

}  // namespace

void tamper(const h5::File& file, const Places& places, FuzzedDataProvider& bytes) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  for (int i = 0; i < 4 && bytes.remaining_bytes() > 0; ++i) {
    const std::size_t all = places.objects.size() + places.attributes.size();
    const auto place = bytes.ConsumeIntegralInRange<std::size_t>(0, all);
    if (place == all) return;
    if (place < places.objects.size()) {
      replace_object(file, places.objects[place], bytes);
    } else {
      replace_attribute(file, places.attributes[place - places.objects.size()], bytes);
    }
  }
}

}  // namespace lockstep::fuzz
