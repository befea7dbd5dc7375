#include "hdf5_detail.hpp"

#include <cstring>
#include <utility>

namespace lockstep::h5 {
namespace {

struct OpenAttribute {
  Attribute attribute;
  Datatype type;
  Extent extent;
  std::string object;
};

std::optional<OpenAttribute> open_attribute(Location location, const std::string& name) {
  OpenAttribute result;
  result.object = fmt::format("attribute {} of {}", name, name_of(location.id()));
  const htri_t there = H5Aexists(location.id(), name.c_str());
  if (there < 0) cannot_read(result.object);
  if (there == 0) return std::nullopt;
  result.attribute = Attribute(H5Aopen(location.id(), name.c_str(), H5P_DEFAULT));
  if (!result.attribute) cannot_read(result.object);
  result.type = Datatype(H5Aget_type(result.attribute.get()));
  const Dataspace space(H5Aget_space(result.attribute.get()));
  if (!result.type || !space) cannot_read(result.object);
  result.extent = extent_of(space, result.object);
  if (result.extent.dims.size() > 1 || result.extent.elements > max_attribute_elements) {
    fail(ExitStatus::bad_input,
         "{} has {} axes and {} values (one axis and at most {} are expected); write it again",
         result.object, result.extent.dims.size(), result.extent.elements, max_attribute_elements);
  }
  return result;
}

/// Accepts an integer where a float is wanted, since h5py writes a Python int as an integer. A
/// float is not accepted as an integer.
void require_number(const OpenAttribute& a, TypeClass wanted) {
  const ElementType element = element_type_of(a.type);
  if (element.type == wanted ||
      (wanted == TypeClass::floating && element.type == TypeClass::integer))
    return;
  fail(ExitStatus::bad_input, "{} is {}, not {} (its type is wrong); write it again", a.object,
       to_string(element), wanted == TypeClass::integer ? "an integer" : "a number");
}

template <typename T>
std::optional<T> read_number(Location location, const std::string& name) {
  const auto opened = open_attribute(location, name);
  if (!opened) return std::nullopt;
  require_number(*opened, std::is_floating_point_v<T> ? TypeClass::floating : TypeClass::integer);
  if (opened->extent.elements != 1) {
    fail(ExitStatus::bad_input,
         "{} holds {} values, not one (a single value is expected); write it again", opened->object,
         opened->extent.elements);
  }
  T value{};
  if (H5Aread(opened->attribute.get(), native_type<T>(), &value) < 0) cannot_read(opened->object);
  return value;
}

/// Frees the library's memory for variable-length strings, also on exceptions.
class VariableStrings final {
 public:
  VariableStrings(const Datatype& type, const Dataspace& space, std::size_t count)
      : type_(type), space_(space), pointers_(count, nullptr) {}
  VariableStrings(const VariableStrings&) = delete;
  VariableStrings& operator=(const VariableStrings&) = delete;
  ~VariableStrings() { H5Dvlen_reclaim(type_.get(), space_.get(), H5P_DEFAULT, pointers_.data()); }
  [[nodiscard]] char** data() noexcept { return pointers_.data(); }

 private:
  const Datatype& type_;
  const Dataspace& space_;
  std::vector<char*> pointers_;
};

void check_length(std::size_t bytes, const std::string& object) {
  if (bytes > max_string_bytes) {
    fail(ExitStatus::bad_input,
         "{} holds {} bytes of text (at most {} are expected); it is damaged", object, bytes,
         max_string_bytes);
  }
}

std::vector<std::string> read_variable(const OpenAttribute& a, const Datatype& memory) {
  const Dataspace space(H5Aget_space(a.attribute.get()));
  VariableStrings strings(memory, space, a.extent.elements);
  if (H5Aread(a.attribute.get(), memory.get(), strings.data()) < 0) cannot_read(a.object);
  std::vector<std::string> result;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < a.extent.elements; ++i) {
    const char* text = strings.data()[i];
    const std::size_t length = text == nullptr ? 0 : ::strnlen(text, max_string_bytes + 1);
    check_length(bytes += length, a.object);
    result.emplace_back(text == nullptr ? "" : text, length);
  }
  return result;
}

std::vector<std::string> read_fixed(const OpenAttribute& a, const Datatype& memory) {
  const std::size_t size = H5Tget_size(a.type.get());
  check_length(size, a.object);
  check_length(size * a.extent.elements, a.object);
  H5Tset_size(memory.get(), size);
  std::string bytes(size * a.extent.elements, '\0');
  if (!bytes.empty() && H5Aread(a.attribute.get(), memory.get(), bytes.data()) < 0)
    cannot_read(a.object);
  const bool space_padded = H5Tget_strpad(a.type.get()) == H5T_STR_SPACEPAD;
  std::vector<std::string> result;
  for (std::size_t i = 0; i < a.extent.elements; ++i) {
    const char* text = bytes.data() + i * size;
    std::size_t length = ::strnlen(text, size);
    while (space_padded && length > 0 && text[length - 1] == ' ') --length;
    result.emplace_back(text, length);
  }
  return result;
}

std::vector<std::string> read_all_strings(const OpenAttribute& a) {
  if (H5Tget_class(a.type.get()) != H5T_STRING) {
    fail(ExitStatus::bad_input, "{} is {}, not text (its type is wrong); write it again", a.object,
         to_string(element_type_of(a.type)));
  }
  const Datatype memory(H5Tcopy(H5T_C_S1));
  H5Tset_cset(memory.get(), H5Tget_cset(a.type.get()));
  H5Tset_strpad(memory.get(), H5Tget_strpad(a.type.get()));
  const htri_t variable = H5Tis_variable_str(a.type.get());
  if (variable < 0) cannot_read(a.object);
  if (variable == 0) return read_fixed(a, memory);
  H5Tset_size(memory.get(), H5T_VARIABLE);
  return read_variable(a, memory);
}

void write(Location location, const std::string& name, const Datatype& type, const Dataspace& space,
           const void* data) {
  const std::string object = fmt::format("attribute {} of {}", name, name_of(location.id()));
  const Attribute attribute(
      H5Acreate2(location.id(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT));
  if (!attribute || H5Awrite(attribute.get(), type.get(), data) < 0) cannot_write(object);
}

template <typename T>
void write_number(Location location, const std::string& name, T value) {
  write(location, name, Datatype(H5Tcopy(native_type<T>())), Dataspace(H5Screate(H5S_SCALAR)),
        &value);
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

bool has_attribute(Location location, const std::string& name) {
  const LibraryLock lock;
  const bool found = H5Aexists(location.id(), name.c_str()) > 0;
  H5Eclear2(H5E_DEFAULT);
  return found;
}

std::optional<std::int64_t> read_int64(Location location, const std::string& name) {
  const LibraryLock lock;
  return read_number<std::int64_t>(location, name);
}
std::optional<std::uint64_t> read_uint64(Location location, const std::string& name) {
  const LibraryLock lock;
  return read_number<std::uint64_t>(location, name);
}
std::optional<std::uint32_t> read_uint32(Location location, const std::string& name) {
  const LibraryLock lock;
  return read_number<std::uint32_t>(location, name);
}
std::optional<double> read_double(Location location, const std::string& name) {
  const LibraryLock lock;
  return read_number<double>(location, name);
}

std::optional<std::string> read_string(Location location, const std::string& name) {
  const LibraryLock lock;
  const auto opened = open_attribute(location, name);
  if (!opened) return std::nullopt;
  if (opened->extent.elements != 1) {
    fail(ExitStatus::bad_input,
         "{} holds {} texts, not one (a single text is expected); write it again", opened->object,
         opened->extent.elements);
  }
  return std::move(read_all_strings(*opened).front());
}

std::optional<std::vector<std::string>> read_strings(Location location, const std::string& name) {
  const LibraryLock lock;
  const auto opened = open_attribute(location, name);
  if (!opened) return std::nullopt;
  return read_all_strings(*opened);
}

std::optional<std::vector<float>> read_floats(Location location, const std::string& name) {
  const LibraryLock lock;
  const auto opened = open_attribute(location, name);
  if (!opened) return std::nullopt;
  require_number(*opened, TypeClass::floating);
  std::vector<float> values(opened->extent.elements);
  if (!values.empty() && H5Aread(opened->attribute.get(), H5T_NATIVE_FLOAT, values.data()) < 0) {
    cannot_read(opened->object);
  }
  return values;
}

void write_int64(Location location, const std::string& name, std::int64_t value) {
  const LibraryLock lock;
  write_number(location, name, value);
}
void write_uint64(Location location, const std::string& name, std::uint64_t value) {
  const LibraryLock lock;
  write_number(location, name, value);
}
void write_uint32(Location location, const std::string& name, std::uint32_t value) {
  const LibraryLock lock;
  write_number(location, name, value);
}
void write_double(Location location, const std::string& name, double value) {
  const LibraryLock lock;
  write_number(location, name, value);
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
  write(location, name, Datatype(H5Tcopy(H5T_IEEE_F32LE)), one_axis(values.size()),
        values.empty() ? &none : values.data());
}

}  // namespace lockstep::h5
