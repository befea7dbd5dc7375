#pragma once

#include "stored_array.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// Reads Python's pickles as far as files of weights need it, and executes nothing: containers,
/// numbers, texts, tensors, and a few types whose contents do not matter. Anything else is refused
/// by its name. Opcodes: Python's Lib/pickletools.py; protocols 2 to 5.
namespace lockstep::pickle {

/// Index of a value in Pickled::values. Values may hold each other, also in cycles.
using Id = std::uint32_t;

struct None {};
/// What the program has no use for, such as arguments of a run.
struct Opaque {};
/// A function or class.
struct Global {
  std::string name;
};
/// The bytes behind tensors.
struct Storage {
  const ElementKind* kind = nullptr;
  std::string key;
  std::int64_t elements = 0;
};
struct Tensor {
  Id storage = 0;
  std::int64_t offset = 0;  ///< in elements; at least 0
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;  ///< as many as extents
};
using List = std::vector<Id>;  ///< also a tuple or set
using Dict = std::vector<std::pair<Id, Id>>;
using Value = std::variant<None, Opaque, bool, std::int64_t, double, std::string, List, Dict,
                           Global, Storage, Tensor>;

struct Pickled {
  std::vector<Value> values;
  Id root = 0;
  std::size_t bytes = 0;  ///< where the pickle ends

  [[nodiscard]] const Value& operator[](Id id) const { return values[id]; }
  /// Null: it is of another type.
  template <typename T>
  [[nodiscard]] const T* as(Id id) const {
    return std::get_if<T>(&values[id]);
  }
};

/// Reads the pickle at the beginning of `bytes`. Error(bad_input) if it is damaged, has a type that
/// is not read, or more than 2^22 values; `path` names the file.
[[nodiscard]] Pickled unpickle(std::string_view bytes, const std::string& path);

}  // namespace lockstep::pickle
