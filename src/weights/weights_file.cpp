#include "lockstep/weights/weights_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/escape.hpp"
#include "lockstep/core/input_file.hpp"
#include "weight_names.hpp"
#include "weight_readers.hpp"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

namespace lockstep {
namespace {

using namespace std::string_view_literals;
using Tensor = WeightsFile::Tensor;

constexpr std::size_t start_bytes = 16;

/// Each tensor by its known name, parts in their order. Error(bad_input) if a part is missing, two
/// tensors have the same name, or parts do not fit each other.
class JoinedTensors final {
 public:
  JoinedTensors(const std::vector<StoredArray>& arrays, const std::string& path)
      : arrays_(arrays), path_(path) {
    std::vector<std::string> names;
    names.reserve(arrays.size());
    for (const StoredArray& array : arrays) names.push_back(array.name);
    const std::vector<KnownName> known = known_names(names);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (!is_unneeded(known[i].name)) add(i, known[i]);
    }
  }

  std::vector<Tensor> take() {
    for (Tensor& tensor : tensors_) finish(tensor);
    return std::move(tensors_);
  }

 private:
  static constexpr std::size_t missing = static_cast<std::size_t>(-1);

  void add(std::size_t array, const KnownName& known) {
    const auto [place, is_new] = places_.emplace(known.name, tensors_.size());
    if (is_new) {
      tensors_.push_back({.name = known.name,
                          .shape = {},
                          .stored_as = arrays_[array].name,
                          .arrays = std::vector<std::size_t>(known.parts, missing)});
    }
    Tensor& tensor = tensors_[place->second];
    if (tensor.arrays.size() != known.parts || tensor.arrays[known.part] != missing) {
      fail(ExitStatus::bad_input, "{} has {} and {} (both are {} of a network); remove one", path_,
           escape_line(tensor.stored_as), escape_line(arrays_[array].name),
           escape_line(known.name));
    }
    tensor.arrays[known.part] = array;
  }

  void finish(Tensor& tensor) const {
    std::vector<std::int64_t> extents;
    bool is_first = true;
    for (const std::size_t index : tensor.arrays) {
      if (index == missing) {
        fail(ExitStatus::bad_input,
             "{} has only a part of {} (it is joined from {} tensors, of which there is {}); use a "
             "whole file",
             path_, escape_line(tensor.name), tensor.arrays.size(), escape_line(tensor.stored_as));
      }
      const StoredArray& array = arrays_[index];
      if (array.extents.size() > Shape::max_rank) {
        fail(ExitStatus::bad_input,
             "{}: {} has {} axes (at most {} are expected); it is no parameter", path_,
             escape_line(array.name), array.extents.size(), Shape::max_rank);
      }
      if (std::exchange(is_first, false)) {
        extents = array.extents;
        continue;
      }
      const bool fits = !array.extents.empty() && array.extents.size() == extents.size() &&
                        std::equal(extents.begin() + 1, extents.end(), array.extents.begin() + 1) &&
                        !__builtin_add_overflow(extents[0], array.extents[0], &extents[0]);
      if (!fits) {
        fail(ExitStatus::bad_input,
             "{}: {} is {}, but {} is {} (they are joined to {}); use another file", path_,
             escape_line(tensor.stored_as), extents_text(extents), escape_line(array.name),
             extents_text(array.extents), escape_line(tensor.name));
      }
    }
    tensor.shape = Shape(extents);
  }

  const std::vector<StoredArray>& arrays_;
  const std::string& path_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t> places_;
};

/// Reads an array's values, and brings them into row-major order.
class ArrayReader final {
 public:
  ArrayReader(const Descriptor& file, const std::string& path, const StoredArray& array)
      : file_(file), path_(path), array_(array) {}

  void append_to(std::vector<float>& values) const {
    if (!array_.kind->is_float) {
      fail(ExitStatus::bad_input,
           "{}: {} is of {} (parameters are floating-point numbers); use another file", path_,
           escape_line(array_.name), array_.kind->name);
    }
    const std::size_t begin = values.size();
    const auto elements = static_cast<std::size_t>(*elements_of(array_.extents));
    if (elements == 0) return;
    const auto span = static_cast<std::size_t>(*span_of(array_));
    if (is_row_major()) {
      values.reserve(begin + elements);
      read(span, values);
    } else {
      std::vector<float> stored;
      stored.reserve(span);
      read(span, stored);
      values.resize(begin + elements);
      gather(stored, std::span(values).subspan(begin));
    }
    require_finite(std::span(values).subspan(begin));
  }

 private:
  [[nodiscard]] bool is_row_major() const {
    const std::vector<std::int64_t> dense = row_major(array_.extents);
    for (std::size_t axis = 0; axis < dense.size(); ++axis) {
      if (array_.extents[axis] != 1 && array_.strides[axis] != dense[axis]) return false;
    }
    return true;
  }

  void read(std::size_t count, std::vector<float>& values) const {
    constexpr std::size_t piece = std::size_t{1} << 20;
    const std::size_t width = array_.kind->bytes;
    std::vector<std::byte> bytes(std::min(count, piece) * width);
    for (std::size_t done = 0; done < count; done += piece) {
      const std::size_t now = std::min(piece, count - done);
      const std::span part = std::span(bytes).first(now * width);
      if (read_input(file_, path_, array_.begin + done * width, part) != part.size()) {
        fail(ExitStatus::bad_input, "{} ends within {}; copy or write it again", path_,
             escape_line(array_.name));
      }
      append_floats(*array_.kind, part.data(), now, values);
    }
  }

  void gather(const std::vector<float>& stored, std::span<float> values) const {
    std::vector<std::int64_t> index(array_.extents.size(), 0);
    for (float& value : values) {
      std::int64_t place = 0;
      for (std::size_t axis = 0; axis < index.size(); ++axis) {
        place += index[axis] * array_.strides[axis];
      }
      value = stored[static_cast<std::size_t>(place)];
      for (std::size_t axis = index.size(); axis-- > 0;) {
        if (++index[axis] < array_.extents[axis]) break;
        index[axis] = 0;
      }
    }
  }

  void require_finite(std::span<const float> values) const {
    const auto bad =
        std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
    if (bad == values.end()) return;
    fail(ExitStatus::bad_input,
         "{}: {} holds a value that is not finite in fp32 at element {} (training cannot start "
         "from it); "
         "use another file",
         path_, escape_line(array_.name), bad - values.begin());
  }

  const Descriptor& file_;
  const std::string& path_;
  const StoredArray& array_;
};

/// Error(bad_input) unless the part of the file in which the array lies has its stored sum.
void require_sum(const Descriptor& file, const std::string& path, const StoredArray& array) {
  constexpr std::uint64_t piece = std::uint64_t{1} << 22;
  std::vector<std::byte> bytes(std::min(piece, array.checked->bytes));
  uLong crc = 0;
  for (std::uint64_t done = 0; done < array.checked->bytes; done += piece) {
    const std::span part = std::span(bytes).first(std::min(piece, array.checked->bytes - done));
    const std::size_t count = read_input(file, path, array.checked->begin + done, part);
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(part.data()), count);
  }
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
  if (static_cast<std::uint32_t>(crc) != array.checked->crc32) {
    fail(ExitStatus::bad_input,
         "{}: {} is damaged (its CRC is {:08x}, its bytes give {:08x}); copy or write it again",
         path, escape_line(array.name), array.checked->crc32, crc);
  }
#endif
}

std::optional<StoredWeights> read_stored(const FilePath& path) {
  Descriptor file = open_input(path);
  const std::string start = read_text(file, path.text(), 0, start_bytes);
  if (start.starts_with("PK\x03\x04")) return read_torch_zip(std::move(file), path.text());
  // torch's magic number as a pickled integer of ten bytes.
  if (start.size() > 4 && start[0] == '\x80' &&
      std::string_view(start).substr(2).starts_with(
          "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv)) {
    return read_torch_legacy(std::move(file), path.text());
  }
  if (start.starts_with('{')) return read_safetensors_index(file, path);
  if (start.size() > 8 && start[8] == '{') return read_safetensors(std::move(file), path.text());
  return std::nullopt;
}

}  // namespace

std::string read_text(const Descriptor& file, const std::string& path, std::uint64_t begin,
                      std::uint64_t bytes) {
  std::string text(bytes, '\0');
  text.resize(read_input(file, path, begin, std::as_writable_bytes(std::span(text))));
  return text;
}

std::optional<WeightsFile> WeightsFile::open(const FilePath& path) {
  std::optional<StoredWeights> stored = read_stored(path);
  if (!stored) return std::nullopt;
  return WeightsFile(path.text(), *std::move(stored));
}

WeightsFile::WeightsFile(std::string path, StoredWeights stored)
    : path_(std::move(path)), stored_(std::make_unique<StoredWeights>(std::move(stored))) {
  const std::size_t first = stored_->model.size();
  model_ = JoinedTensors(stored_->model, path_).take();
  average_ = JoinedTensors(stored_->average, path_).take();
  for (Tensor& tensor : average_) {
    for (std::size_t& index : tensor.arrays) index += first;
  }
  for (const Tensor& tensor : model_) model_places_.emplace(tensor.name, model_places_.size());
  for (const Tensor& tensor : average_) {
    average_places_.emplace(tensor.name, average_places_.size());
  }
  if (model_.empty()) {
    fail(ExitStatus::bad_input, "{} holds no tensors; use another file", path_);
  }
}

WeightsFile::WeightsFile(WeightsFile&&) noexcept = default;
WeightsFile& WeightsFile::operator=(WeightsFile&&) noexcept = default;
WeightsFile::~WeightsFile() = default;

const std::map<std::string, std::string>& WeightsFile::metadata() const noexcept {
  return stored_->metadata;
}

void WeightsFile::append_array(std::size_t index, std::vector<float>& values) const {
  const std::size_t models = stored_->model.size();
  const StoredArray& array =
      index < models ? stored_->model[index] : stored_->average[index - models];
  const Descriptor& file = stored_->files[array.file];
  if (array.checked && stored_->verified.insert(array.checked->begin).second) {
    require_sum(file, path_, array);
  }
  ArrayReader(file, path_, array).append_to(values);
}

std::vector<float> WeightsFile::read(const std::vector<Tensor>& tensors, const Places& places,
                                     const std::string& name) const {
  const auto place = places.find(name);
  if (place == places.end()) fail(ExitStatus::internal, "{} has no {}", path_, name);
  std::vector<float> values;
  for (const std::size_t index : tensors[place->second].arrays) append_array(index, values);
  return values;
}

std::vector<float> WeightsFile::read_model(const std::string& name) const {
  return read(model_, model_places_, name);
}

std::vector<float> WeightsFile::read_average(const std::string& name) const {
  return read(average_, average_places_, name);
}

void WeightsFile::verify() const {
  // Several tensors may be the same values.
  std::set<std::tuple<std::size_t, std::uint64_t, std::int64_t>> seen;
  std::vector<float> values;
  const auto verify_arrays = [&](const std::vector<StoredArray>& arrays, std::size_t first) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const StoredArray& array = arrays[i];
      if (!array.kind->is_float) continue;
      if (!seen.emplace(array.file, array.begin, *elements_of(array.extents)).second) continue;
      values.clear();
      append_array(first + i, values);
    }
  };
  verify_arrays(stored_->model, 0);
  verify_arrays(stored_->average, stored_->model.size());
}

}  // namespace lockstep
