#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/json.hpp"
#include "weight_readers.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

namespace lockstep {
namespace {

constexpr JsonLimits header_limits{.bytes = std::size_t{64} << 20,
                                   .depth = 4,
                                   .members = std::size_t{1} << 13,
                                   .values = std::size_t{1} << 21};
constexpr const char* again = "copy or write it again";

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  fail(ExitStatus::bad_input, "{} is damaged ({}); {}", path, what, again);
}

std::string header_text(const Descriptor& file, const std::string& path, std::uint64_t begin,
                        std::uint64_t bytes) {
  if (bytes > header_limits.bytes) {
    damaged(path, fmt::format("its header has {} bytes, at most {} are read", bytes,
                              header_limits.bytes));
  }
  return read_text(file, path, begin, bytes);
}

/// The list of numbers at a key; all at least 0.
std::vector<std::int64_t> numbers(const std::string& path, const std::string& name,
                                  const Json& tensor, const char* key) {
  std::vector<std::int64_t> values;
  const auto list = tensor.find(key);
  const bool is_list = tensor.is_object() && list != tensor.end() && list->is_array();
  if (is_list) {
    for (const Json& value : *list) {
      if (value.is_number_integer() && value.get<double>() >= 0 && value.get<double>() < 0x1p62) {
        values.push_back(value.get<std::int64_t>());
      }
    }
  }
  if (!is_list || values.size() != list->size()) {
    damaged(path, fmt::format("the {} of {} is no list of numbers", key, escape_line(name)));
  }
  return values;
}

StoredArray array_of(const std::string& path, const std::string& name, const Json& tensor,
                     std::uint64_t begin, std::uint64_t size) {
  const Json type = tensor.is_object() ? tensor.value("dtype", Json()) : Json();
  const std::string kind_name = type.is_string() ? type.get<std::string>() : "";
  StoredArray array{.name = name,
                    .kind = kind_of_short_name(kind_name),
                    .extents = numbers(path, name, tensor, "shape"),
                    .strides = {}};
  if (array.kind == nullptr) {
    fail(ExitStatus::bad_input,
         "{}: {} has the type {} (F64, F32, F16, BF16 and integers are read); convert it", path,
         escape_line(name), escape_line(kind_name));
  }
  const std::vector<std::int64_t> offsets = numbers(path, name, tensor, "data_offsets");
  const std::optional<std::int64_t> elements = elements_of(array.extents);
  const std::uint64_t room = size - begin;
  if (offsets.size() != 2 || offsets[0] > offsets[1] ||
      static_cast<std::uint64_t>(offsets[1]) > room || !elements ||
      static_cast<std::uint64_t>(*elements) > room ||
      static_cast<std::uint64_t>(*elements) * array.kind->bytes !=
          static_cast<std::uint64_t>(offsets[1] - offsets[0])) {
    damaged(path, fmt::format("{} is {} {}, at bytes {} of {}", escape_line(name),
                              extents_text(array.extents), array.kind->name,
                              fmt::join(offsets, " to "), room));
  }
  array.strides = row_major(array.extents);
  array.begin = begin + static_cast<std::uint64_t>(offsets[0]);
  return array;
}

void require_apart(const std::string& path, const std::vector<StoredArray>& arrays) {
  std::vector<const StoredArray*> sorted;
  sorted.reserve(arrays.size());
  for (const StoredArray& array : arrays) sorted.push_back(&array);
  std::ranges::sort(sorted, {}, [](const StoredArray* array) { return array->begin; });
  std::uint64_t end = 0;
  for (const StoredArray* array : sorted) {
    if (array->begin < end) {
      damaged(path, fmt::format("{} lies where another tensor is", escape_line(array->name)));
    }
    end = array->begin +
          static_cast<std::uint64_t>(*elements_of(array->extents)) * array->kind->bytes;
  }
}

}  // namespace

StoredWeights read_safetensors(Descriptor file, const std::string& path) {
  const std::uint64_t size = size_of(file, path);
  std::uint64_t header = 0;
  const auto count = std::as_writable_bytes(std::span(&header, 1));
  if (read_input(file, path, 0, count) != count.size() || header > size - count.size()) {
    damaged(path, "its header is not whole");
  }
  const Json json = require_json(header_text(file, path, count.size(), header),
                                 fmt::format("the header of {}", path), again, header_limits);
  if (!json.is_object()) damaged(path, "its header is no object");
  StoredWeights weights;
  for (const auto& [name, tensor] : json.items()) {
    if (name != "__metadata__") {
      weights.model.push_back(array_of(path, name, tensor, count.size() + header, size));
    } else if (tensor.is_object()) {
      for (const auto& [key, value] : tensor.items()) {
        if (value.is_string()) weights.metadata.emplace(key, value.get<std::string>());
      }
    }
  }
  require_apart(path, weights.model);
  weights.files.push_back(std::move(file));
  return weights;
}

StoredWeights read_safetensors_index(const Descriptor& index, const FilePath& path) {
  const std::string& name = path.text();
  const Json json =
      require_json(header_text(index, name, 0, size_of(index, name)), name, again, header_limits);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || map == json.end() || !map->is_object()) {
    fail(
        ExitStatus::bad_input,
        "{} has no weight_map (an index of safetensors files names the file of each tensor there); "
        "check the path",
        name);
  }
  std::map<std::string, std::vector<std::string>> tensors_of;  // by file
  for (const auto& [tensor, file] : map->items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    if (text.empty() || text.find('/') != std::string::npos) {
      damaged(name, fmt::format("the file of {} is no name in its directory", escape_line(tensor)));
    }
    tensors_of[text].push_back(tensor);
  }
  StoredWeights all;
  const std::filesystem::path folder = std::filesystem::path(name).parent_path();
  for (const auto& [file, tensors] : tensors_of) {
    const std::string part_path = (folder / file).string();
    StoredWeights part = read_safetensors(
        open_input(part_path, "copy all files of the index to its directory"), part_path);
    std::map<std::string_view, const StoredArray*> arrays;
    for (const StoredArray& array : part.model) arrays.emplace(array.name, &array);
    for (const std::string& tensor : tensors) {
      const auto found = arrays.find(tensor);
      if (found == arrays.end()) {
        damaged(name, fmt::format("{} is not in {}", escape_line(tensor), part_path));
      }
      all.model.push_back(*found->second);
      all.model.back().file = all.files.size();
    }
    all.files.push_back(std::move(part.files.front()));
    all.metadata.merge(part.metadata);
  }
  return all;
}

}  // namespace lockstep
