#include "hdf5_node.hpp"
#include "hdf5_trees.hpp"
#include "hdf5_types.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

namespace lockstep::h5 {
namespace {

struct OpenAttribute {
  const Input& input;
  std::string object;  ///< for messages
  StoredType type = {};
  Extent extent = {};
  std::span<const std::byte> values = {};
};

std::uint64_t padded(std::uint64_t bytes, std::uint8_t version) noexcept {
  return version == 1 ? (bytes + 7) / 8 * 8 : bytes;
}

OpenAttribute parse_attribute(const Node& node, const StoredAttribute& attribute) {
  const Input& input = *node.input();
  OpenAttribute result{.input = input,
                       .object = fmt::format("attribute {} of {}", attribute.name, node.name())};
  Cursor cursor(input, attribute.body, "an attribute");
  const std::uint8_t version = cursor.byte();
  if (version < 1 || version > 3) input.damaged(result.object + " has an unknown version");
  if (cursor.byte() != 0 && version > 1) node.refuse(result.object + " with a shared type");
  const std::uint64_t name_bytes = cursor.number(2);
  const std::uint64_t type_bytes = cursor.number(2);
  const std::uint64_t space_bytes = cursor.number(2);
  if (version == 3) cursor.skip(1);  // the name's character set
  cursor.skip(padded(name_bytes, version));
  const Cursor type(input, cursor.bytes(padded(type_bytes, version)), "a type");
  const Cursor space(input, cursor.bytes(padded(space_bytes, version)), "a shape");
  result.type = parse_datatype(type);
  result.extent = parse_dataspace(space, result.object);
  if (result.extent.dims.size() > 1 || result.extent.elements > max_attribute_elements) {
    fail(ExitStatus::bad_input,
         "{} has {} axes and {} values (one axis and at most {} are expected); write it again",
         result.object, result.extent.dims.size(), result.extent.elements, max_attribute_elements);
  }
  result.values = cursor.bytes(result.extent.elements * result.type.element.size);
  return result;
}

std::optional<OpenAttribute> open_attribute(const Object& object, const std::string& name) {
  const Node& node = *object;
  const auto found = std::ranges::find(node.attributes(), name, &StoredAttribute::name);
  if (found == node.attributes().end()) return std::nullopt;
  return parse_attribute(node, *found);
}

/// Accepts an integer where a float is wanted, since h5py writes a Python int as an integer. A
/// float is not accepted as an integer.
void require_number(const OpenAttribute& a, TypeClass wanted) {
  const TypeClass found = a.type.element.type;
  if (found == wanted || (wanted == TypeClass::floating && found == TypeClass::integer)) return;
  fail(ExitStatus::bad_input, "{} is {}, not {} (its type is wrong); write it again", a.object,
       to_string(a.type.element), wanted == TypeClass::integer ? "an integer" : "a number");
}

void check_length(std::size_t bytes, const std::string& object) {
  if (bytes > max_string_bytes) {
    fail(ExitStatus::bad_input,
         "{} holds {} bytes of text (at most {} are expected); it is damaged", object, bytes,
         max_string_bytes);
  }
}

/// Each element is a length and a place in a global heap.
std::vector<std::string> read_variable(const OpenAttribute& a) {
  GlobalHeap heap(a.input);
  Cursor cursor(a.input, a.values, "text of variable length");
  std::vector<std::string> result(a.extent.elements);
  std::size_t bytes = 0;
  for (std::string& text : result) {
    const std::uint64_t length = cursor.number(4);
    const std::uint64_t collection = cursor.address();
    const std::uint64_t index = cursor.number(4);
    check_length(bytes += length, a.object);
    text = heap.read(collection, index, length);
    text.resize(std::min(text.size(), text.find('\0')));
  }
  return result;
}

std::vector<std::string> read_fixed(const OpenAttribute& a) {
  const std::size_t size = a.type.element.size;
  check_length(a.values.size(), a.object);
  std::vector<std::string> result(a.extent.elements);
  for (std::size_t i = 0; i < result.size(); ++i) {
    const char* text = reinterpret_cast<const char*>(a.values.data()) + i * size;
    std::size_t length = ::strnlen(text, size);
    while (a.type.is_space_padded && length > 0 && text[length - 1] == ' ') --length;
    result[i].assign(text, length);
  }
  return result;
}

std::vector<std::string> read_all_strings(const OpenAttribute& a) {
  if (a.type.element.type != TypeClass::text) {
    fail(ExitStatus::bad_input, "{} is {}, not text (its type is wrong); write it again", a.object,
         to_string(a.type.element));
  }
  return a.type.is_variable_text ? read_variable(a) : read_fixed(a);
}

}  // namespace

bool has_attribute(const Object& object, const std::string& name) {
  const auto& attributes = object->attributes();
  return std::ranges::find(attributes, name, &StoredAttribute::name) != attributes.end();
}

template <typename T>
std::optional<T> read_number(const Object& object, const std::string& name) {
  const auto opened = open_attribute(object, name);
  if (!opened) return std::nullopt;
  require_number(*opened, std::is_floating_point_v<T> ? TypeClass::floating : TypeClass::integer);
  if (opened->extent.elements != 1) {
    fail(ExitStatus::bad_input,
         "{} holds {} values, not one (a single value is expected); write it again", opened->object,
         opened->extent.elements);
  }
  T value{};
  convert<T>(opened->values, opened->type.element, std::span(&value, 1));
  return value;
}
template std::optional<std::int64_t> read_number(const Object&, const std::string&);
template std::optional<std::uint64_t> read_number(const Object&, const std::string&);
template std::optional<std::uint32_t> read_number(const Object&, const std::string&);
template std::optional<double> read_number(const Object&, const std::string&);

std::optional<std::string> read_string(const Object& object, const std::string& name) {
  const auto opened = open_attribute(object, name);
  if (!opened) return std::nullopt;
  if (opened->extent.elements != 1) {
    fail(ExitStatus::bad_input,
         "{} holds {} texts, not one (a single text is expected); write it again", opened->object,
         opened->extent.elements);
  }
  return std::move(read_all_strings(*opened).front());
}

std::optional<std::vector<std::string>> read_strings(const Object& object,
                                                     const std::string& name) {
  const auto opened = open_attribute(object, name);
  if (!opened) return std::nullopt;
  return read_all_strings(*opened);
}

std::optional<std::vector<float>> read_floats(const Object& object, const std::string& name) {
  const auto opened = open_attribute(object, name);
  if (!opened) return std::nullopt;
  require_number(*opened, TypeClass::floating);
  std::vector<float> values(opened->extent.elements);
  convert<float>(opened->values, opened->type.element, values);
  return values;
}

}  // namespace lockstep::h5
