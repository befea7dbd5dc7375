#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/input_file.hpp"
#include "unpickle.hpp"
#include "weight_readers.hpp"
#include "zip_reader.hpp"

#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <utility>

namespace lockstep {
namespace {

using pickle::Dict;
using pickle::Id;
using pickle::Pickled;

constexpr std::uint64_t most_pickle = std::uint64_t{64} << 20;
// A pickle may give the same tensor, under the same long name, again and again.
constexpr std::size_t most_tensors = std::size_t{1} << 16;
constexpr std::size_t most_name = 1024;

constexpr std::array model_keys{"state_dict", "model", "model_state_dict", "model_state", "module"};
constexpr std::array average_keys{"model_ema", "state_dict_ema", "ema_state_dict", "ema"};

struct Place {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::optional<std::uint32_t> crc32 = {};
};
/// Where a storage lies in the file.
using PlaceOf = std::function<Place(const pickle::Storage&)>;

/// The value at a key; the last one counts.
template <std::size_t N>
const Dict* dict_at(const Pickled& pickled, const Dict& dict,
                    const std::array<const char*, N>& keys) {
  for (const char* key : keys) {
    for (auto entry = dict.rbegin(); entry != dict.rend(); ++entry) {
      const auto* text = pickled.as<std::string>(entry->first);
      if (text != nullptr && *text == key && pickled.as<Dict>(entry->second) != nullptr) {
        return pickled.as<Dict>(entry->second);
      }
    }
  }
  return nullptr;
}

/// The state dict in a dict, perhaps within others.
const Dict& state_dict_in(const Pickled& pickled, const Dict& outer) {
  constexpr int most_depth = 8;
  const Dict* dict = &outer;
  for (int depth = 0; depth < most_depth; ++depth) {
    const Dict* inner = dict_at(pickled, *dict, model_keys);
    if (inner == nullptr) break;
    dict = inner;
  }
  return *dict;
}

class TensorsOfPickle final {
 public:
  TensorsOfPickle(const Pickled& pickled, const PlaceOf& place_of, const std::string& path)
      : pickled_(pickled), place_of_(place_of), path_(path) {}

  void read_into(StoredWeights& weights) const {
    const Dict* root = pickled_.as<Dict>(pickled_.root);
    if (root == nullptr) {
      fail(ExitStatus::bad_input,
           "{} holds no dict (a state dict is read, or a dict with one); save model.state_dict()",
           path_);
    }
    weights.model = arrays_of(state_dict_in(pickled_, *root));
    if (const Dict* average = dict_at(pickled_, *root, average_keys)) {
      weights.average = arrays_of(state_dict_in(pickled_, *average));
    }
    if (!weights.model.empty()) return;
    weights.model.swap(weights.average);
    if (weights.model.empty()) refuse(*root);
  }

 private:
  [[noreturn]] void refuse(const Dict& root) const {
    constexpr std::size_t most_keys = 8;
    std::vector<std::string> keys;
    for (const auto& [key, value] : root) {
      if (keys.size() == most_keys) break;
      const auto* text = pickled_.as<std::string>(key);
      keys.push_back(text == nullptr ? "a key that is no text"
                                     : escape_line(text->substr(0, most_name)));
    }
    fail(ExitStatus::bad_input,
         "{} holds no state dict (its {} keys begin with {}; one with tensors, or with {} is "
         "read); save "
         "model.state_dict()",
         path_, root.size(), keys.empty() ? "none" : fmt::to_string(fmt::join(keys, ", ")),
         fmt::join(model_keys, ", "));
  }

  std::vector<StoredArray> arrays_of(const Dict& dict) const {
    std::vector<StoredArray> arrays;
    for (const auto& [key, value] : dict) {
      const auto* tensor = pickled_.as<pickle::Tensor>(value);
      const auto* name = pickled_.as<std::string>(key);
      if (tensor == nullptr || name == nullptr) continue;
      if (arrays.size() == most_tensors || name->size() > most_name) {
        fail(ExitStatus::bad_input,
             "{} has more than {} tensors, or a name of more than {} bytes (a state dict has "
             "neither); use another file",
             path_, most_tensors, most_name);
      }
      arrays.push_back(array_of(*name, *tensor));
    }
    return arrays;
  }

  StoredArray array_of(const std::string& name, const pickle::Tensor& tensor) const {
    const auto& storage = *pickled_.as<pickle::Storage>(tensor.storage);
    StoredArray array{
        .name = name, .kind = storage.kind, .extents = tensor.extents, .strides = tensor.strides};
    const Place place = place_of_(storage);
    const auto stored = static_cast<std::int64_t>(place.bytes / storage.kind->bytes);
    const std::optional<std::int64_t> elements = elements_of(array.extents);
    const std::optional<std::int64_t> span = span_of(array);
    if (storage.elements > stored || !elements || !span || *elements > storage.elements ||
        *span > storage.elements || tensor.offset > storage.elements - *span) {
      fail(ExitStatus::bad_input,
           "{}: {} is {} from element {} on, but its storage has {} values (and {} bytes in the "
           "file); the file is damaged",
           path_, escape_line(name), extents_text(array.extents), tensor.offset, storage.elements,
           place.bytes);
    }
    array.begin = place.begin + static_cast<std::uint64_t>(tensor.offset) * storage.kind->bytes;
    if (place.crc32) {
      array.checked = {.begin = place.begin, .bytes = place.bytes, .crc32 = *place.crc32};
    }
    return array;
  }

  const Pickled& pickled_;
  const PlaceOf& place_of_;
  const std::string& path_;
};

[[noreturn]] void refuse_big_endian(const std::string& path) {
  fail(ExitStatus::bad_input,
       "{} was written on a big-endian machine (its values have another order of bytes); load and "
       "save it on a little-endian one",
       path);
}

[[noreturn]] void refuse_compression(const std::string& path, const std::string& entry) {
  fail(ExitStatus::bad_input,
       "{} has the compressed entry {} (torch.save compresses none; a few bytes could become any "
       "number); load and save it with PyTorch",
       path, escape_line(entry));
}

using ZipEntries = std::map<std::string, ZipPlace>;

/// Of an entry that is no tensor.
std::string entry_text(const Descriptor& file, const std::string& path,
                       const ZipEntries::value_type& entry, std::uint64_t most) {
  const ZipPlace& place = entry.second;
  if (place.is_compressed) refuse_compression(path, entry.first);
  if (place.bytes > most) {
    fail(ExitStatus::bad_input,
         "{} has {} bytes of objects beside its tensors (at most {} are read); save the state dict "
         "alone",
         path, place.bytes, most);
  }
  std::string text = read_text(file, path, place.begin, place.bytes);
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  const auto* bytes = reinterpret_cast<const Bytef*>(text.data());
  if (static_cast<std::uint32_t>(crc32_z(0, bytes, text.size())) != place.crc32) {
    fail(ExitStatus::bad_input,
         "{} is damaged (the bytes of {} do not have its CRC); copy or write it again", path,
         escape_line(entry.first));
  }
#endif
  return text;
}

/// What the file of an old torch.save begins with: a magic number, the protocol, and the system.
std::size_t skip_preamble(std::string_view bytes, const std::string& path) {
  std::size_t at = 0;
  for (int part = 0; part < 3; ++part) {
    const Pickled pickled = pickle::unpickle(bytes.substr(at), path);
    at += pickled.bytes;
    const Dict* system = pickled.as<Dict>(pickled.root);
    if (system == nullptr) continue;
    for (const auto& [key, value] : *system) {
      const auto* name = pickled.as<std::string>(key);
      const auto* is_set = pickled.as<bool>(value);
      if (name != nullptr && *name == "little_endian" && is_set != nullptr && !*is_set) {
        refuse_big_endian(path);
      }
    }
  }
  return at;
}

/// Kinds of the storages, by key.
std::map<std::string, const ElementKind*> storage_kinds(const Pickled& pickled) {
  std::map<std::string, const ElementKind*> kinds;
  for (const pickle::Value& value : pickled.values) {
    if (const auto* storage = std::get_if<pickle::Storage>(&value)) {
      kinds.emplace(storage->key, storage->kind);
    }
  }
  return kinds;
}

/// Places of the storages, which follow the pickles from `begin` in the order of `keys`: the number
/// of elements, then the values.
std::map<std::string, Place> legacy_places(const Descriptor& file, const std::string& path,
                                           std::uint64_t begin, const Pickled& keys,
                                           const std::map<std::string, const ElementKind*>& kinds) {
  std::map<std::string, Place> places;
  const std::uint64_t size = size_of(file, path);
  const auto* list = keys.as<pickle::List>(keys.root);
  for (const Id id : list == nullptr ? pickle::List() : *list) {
    const auto* key = keys.as<std::string>(id);
    const auto kind = key == nullptr ? kinds.end() : kinds.find(*key);
    std::uint64_t elements = 0;
    const auto bytes = std::as_writable_bytes(std::span(&elements, 1));
    if (kind == kinds.end() || read_input(file, path, begin, bytes) != bytes.size() ||
        elements > (size - begin - bytes.size()) / kind->second->bytes) {
      fail(ExitStatus::bad_input,
           "{} is damaged (a storage is not whole, at byte {} of {}); copy or write it again", path,
           begin, size);
    }
    begin += bytes.size();
    const Place place{.begin = begin, .bytes = elements * kind->second->bytes};
    places.emplace(*key, place);
    begin += place.bytes;
  }
  return places;
}

}  // namespace

std::optional<StoredWeights> read_torch_zip(Descriptor file, const std::string& path) {
  const ZipEntries entries = read_zip(file, path);
  constexpr std::string_view objects = "/data.pkl";
  std::string folder;
  for (const auto& [name, place] : entries) {
    if (name.find("/code/") != std::string::npos) return std::nullopt;
    if (name.ends_with(objects)) folder = name.substr(0, name.size() - objects.size());
  }
  const auto found = entries.find(folder + std::string(objects));
  if (found == entries.end()) return std::nullopt;
  if (const auto order = entries.find(folder + "/byteorder"); order != entries.end()) {
    constexpr std::uint64_t most_word = 16;
    if (entry_text(file, path, *order, most_word) != "little") refuse_big_endian(path);
  }
  const Pickled pickled = pickle::unpickle(entry_text(file, path, *found, most_pickle), path);
  const PlaceOf place_of = [&](const pickle::Storage& storage) -> Place {
    const auto entry = entries.find(fmt::format("{}/data/{}", folder, storage.key));
    if (entry == entries.end()) return {};
    if (entry->second.is_compressed) refuse_compression(path, entry->first);
    return {
        .begin = entry->second.begin, .bytes = entry->second.bytes, .crc32 = entry->second.crc32};
  };
  StoredWeights weights;
  TensorsOfPickle(pickled, place_of, path).read_into(weights);
  weights.files.push_back(std::move(file));
  return weights;
}

StoredWeights read_torch_legacy(Descriptor file, const std::string& path) {
  const std::string start = read_text(file, path, 0, std::min(size_of(file, path), most_pickle));
  std::size_t at = skip_preamble(start, path);
  const std::string_view bytes = start;
  const Pickled pickled = pickle::unpickle(bytes.substr(at), path);
  at += pickled.bytes;
  const Pickled keys = pickle::unpickle(bytes.substr(at), path);
  at += keys.bytes;
  const auto places = legacy_places(file, path, at, keys, storage_kinds(pickled));
  const PlaceOf place_of = [&](const pickle::Storage& storage) {
    const auto place = places.find(storage.key);
    return place == places.end() ? Place{} : place->second;
  };
  StoredWeights weights;
  TensorsOfPickle(pickled, place_of, path).read_into(weights);
  weights.files.push_back(std::move(file));
  return weights;
}

}  // namespace lockstep
