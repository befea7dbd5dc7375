#include "state_dict_pickle.hpp"

#include "lockstep/core/little_endian.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

// Opcodes: Python's Lib/pickletools.py. What each tensor consists of: torch/_utils.py.

namespace lockstep {
namespace {

constexpr std::string_view protocol_2 = "\x80\x02";
constexpr std::string_view mark = "(";
constexpr std::string_view tuple = "t";  ///< of what follows the mark
constexpr std::string_view empty_tuple = ")";
constexpr std::string_view reduce = "R";         ///< calls a function with a tuple
constexpr std::string_view persistent_id = "Q";  ///< an object from outside: a storage
constexpr std::string_view new_false = "\x89";
constexpr std::string_view set_items = "u";  ///< of what follows the mark
constexpr std::string_view stop = ".";

std::string global(std::string_view module, std::string_view name) {
  return fmt::format("c{}\n{}\n", module, name);
}

std::string unicode(std::string_view text) {
  return fmt::format("X{}{}", little_endian(static_cast<std::uint32_t>(text.size())), text);
}

std::string integer(std::int64_t value) {
  return fmt::format("J{}", little_endian(static_cast<std::int32_t>(value)));
}

class Pickle final {
 public:
  template <typename... Words>
  void add(const Words&... words) {
    ((text_ += words), ...);
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

void add_storage(Pickle& pickle, const StateTensor& tensor, std::size_t number) {
  const bool is_float = tensor.type == ElementType::float32;
  pickle.add(mark, unicode("storage"), global("torch", is_float ? "FloatStorage" : "LongStorage"),
             unicode(std::to_string(number)), unicode("cpu"), integer(tensor.shape.elements()),
             tuple, persistent_id);
}

/// Shape, then strides of row-major order.
void add_layout(Pickle& pickle, const Shape& shape) {
  pickle.add(mark);
  for (const std::int64_t extent : shape.extents()) pickle.add(integer(extent));
  pickle.add(tuple, mark);
  std::int64_t stride = shape.elements();
  for (const std::int64_t extent : shape.extents()) {
    stride /= extent;
    pickle.add(integer(stride));
  }
  pickle.add(tuple);
}

void add_ordered_dict(Pickle& pickle) {
  pickle.add(global("collections", "OrderedDict"), empty_tuple, reduce);
}

void add_tensor(Pickle& pickle, const StateTensor& tensor, std::size_t number) {
  pickle.add(global("torch._utils", "_rebuild_tensor_v2"), mark);
  add_storage(pickle, tensor, number);
  pickle.add(integer(0));  // offset in the storage
  add_layout(pickle, tensor.shape);
  pickle.add(new_false);     // requires_grad
  add_ordered_dict(pickle);  // hooks
  pickle.add(tuple, reduce);
}

}  // namespace

std::string state_dict_pickle(const std::vector<StateTensor>& tensors) {
  Pickle pickle;
  pickle.add(protocol_2);
  add_ordered_dict(pickle);
  pickle.add(mark);
  for (std::size_t number = 0; number < tensors.size(); ++number) {
    pickle.add(unicode(tensors[number].name));
    add_tensor(pickle, tensors[number], number);
  }
  pickle.add(set_items, stop);
  return pickle.text();
}

}  // namespace lockstep
