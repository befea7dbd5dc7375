#include "checkpoint_format.hpp"

#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/core/address_space.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/name_list.hpp"
#include "lockstep/io/hdf5_reader.hpp"
#include "lockstep/io/other_format.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <new>
#include <span>

namespace lockstep {
namespace {

namespace format = checkpoint_format;

constexpr std::uint64_t max_tensor_elements = std::uint64_t{1} << 33;
constexpr std::uint64_t piece_elements = std::uint64_t{1} << 22;

/// Parameters of every read.
struct Source {
  const h5::Object& file;
  const std::string& path;
  CheckpointUse use;
};

void check_checksum(const Source& source, std::optional<std::uint32_t> stored, std::uint32_t found,
                    const std::string& object) {
  if (!stored && source.use == CheckpointUse::resume) {
    fail(ExitStatus::bad_input,
         "{}:{} has no {} attribute (resuming needs a file with all checksums); use --init-from",
         source.path, object, format::checksum);
  }
  if (stored && *stored != found) {
    fail(ExitStatus::bad_input,
         "{}:{} is damaged (its checksum is {:08x}, its bytes give {:08x}); use another file",
         source.path, object, *stored, found);
  }
}

Shape shape_of(const Source& source, const h5::DatasetInfo& info, const std::string& object) {
  if (info.dims.size() > Shape::max_rank) {
    fail(ExitStatus::bad_input,
         "{}:{} has {} axes (at most {} are expected); it is not a parameter", source.path, object,
         info.dims.size(), Shape::max_rank);
  }
  const std::vector<std::int64_t> extents(info.dims.begin(), info.dims.end());
  return Shape(extents);
}

/// Passes the values of a tensor to `take`, piece by piece. Error(bad_input), after the last one,
/// unless they have the stored checksum and are finite.
template <typename Take>
void read_pieces(const Source& source, const std::string& object, const Take& take) {
  const h5::Object dataset = h5::open_dataset(source.file, object);
  const h5::DatasetInfo info = h5::describe(dataset);
  h5::require_values(dataset, max_tensor_elements);
  // A shape may have 2^61 rows without values.
  const std::uint64_t rows = info.elements == 0 ? 0 : info.dims.empty() ? 1 : info.dims[0];
  const std::uint64_t row = rows == 0 ? 0 : info.elements / rows;
  // Whole chunks, so that each is decoded once.
  const std::uint64_t chunk_rows = info.chunk_rows;
  const std::uint64_t wanted = piece_elements / std::max<std::uint64_t>(1, row);
  const std::uint64_t at_once = std::max<std::uint64_t>(1, wanted / chunk_rows) * chunk_rows;
  std::uint32_t checksum = 0;
  std::optional<std::uint64_t> bad;
  std::vector<float> piece;
  for (std::uint64_t first = 0; first < rows; first += at_once) {
    const std::uint64_t count = std::min(at_once, rows - first);
    piece.resize(static_cast<std::size_t>(count * row));
    h5::read_rows<float>(dataset, first, count, piece);
    checksum = crc32c(std::as_bytes(std::span(piece)), checksum);
    const auto found =
        std::ranges::find_if(piece, [](float value) { return !std::isfinite(value); });
    if (!bad && found != piece.end()) {
      bad = first * row + static_cast<std::uint64_t>(found - piece.begin());
    }
    take(piece);
  }
  check_checksum(source, h5::read_number<std::uint32_t>(dataset, format::checksum), checksum,
                 object);
  if (bad) {
    fail(ExitStatus::bad_input,
         "{}:{} holds a value that is not finite at element {} (training cannot resume from it); "
         "use an older file",
         source.path, object, *bad);
  }
}

std::vector<CheckpointReader::Tensor> list_tensors(const Source& source, const std::string& group) {
  std::vector<CheckpointReader::Tensor> tensors;
  for (const std::string& name : h5::children(source.file, group)) {
    // Skip PyTorch's integer batch counter, which a state dict contains and Lockstep does not use.
    if (name.ends_with("num_batches_tracked")) continue;
    const std::string object = fmt::format("{}/{}", group, name);
    tensors.push_back({.name = name,
                       .shape = shape_of(source, h5::describe(source.file, object), object),
                       .stored_as = object});
  }
  return tensors;
}

template <typename T>
std::optional<T> read_field(const h5::Object& group, const char* name) {
  if constexpr (std::is_same_v<T, std::string>) {
    return h5::read_string(group, name);
  } else {
    return h5::read_number<T>(group, name);
  }
}

TrainingState read_state(const Source& source, const h5::Object& group) {
  TrainingState state;
  format::visit_fields(state, [&]<typename T>(const char* name, T& field) {
    if constexpr (std::is_same_v<T, std::optional<std::string>>) {
      field = read_field<std::string>(group, name);
    } else {
      std::optional<T> value = read_field<T>(group, name);
      if (!value) {
        fail(ExitStatus::bad_input,
             "{}:/state has no attribute {} (it is not complete); use --init-from, or another file",
             source.path, name);
      }
      field = std::move(*value);
    }
  });
  check_checksum(source, h5::read_number<std::uint32_t>(group, format::checksum),
                 format::state_checksum(state), "/state");
  return state;
}

void check_format(const Source& source) {
  const std::optional<std::string> found = h5::read_string(source.file, "format");
  if (found.value_or(format::format) != format::format) {
    fail(ExitStatus::bad_input, "{} is not a checkpoint (its format is {}, not {}); check the path",
         source.path, *found, format::format);
  }
  const std::int64_t version =
      h5::read_number<std::int64_t>(source.file, "version").value_or(format::version);
  if (version < 1 || version > format::version) {
    fail(ExitStatus::bad_input,
         "{} has version {} of the format (this program reads 1 to {}); use a newer program",
         source.path, version, format::version);
  }
  if (h5::exists(source.file, "/model")) return;
  refuse_keras(source.file, source.path);
  fail(ExitStatus::bad_input,
       "{} has no group /model (a checkpoint holds its weights there; this file has {}); check the "
       "path, or move the weights to /model",
       source.path, listed(h5::children(source.file, "/")));
}

/// nullopt unless the file has all three attributes.
std::optional<ImageShape> read_image(const Source& source) {
  const auto channels = h5::read_number<std::int64_t>(source.file, "image_channels");
  const auto height = h5::read_number<std::int64_t>(source.file, "image_height");
  const auto width = h5::read_number<std::int64_t>(source.file, "image_width");
  if (!channels || !height || !width) return std::nullopt;
  if (*channels < 1 || *height < 1 || *width < 1) {
    fail(ExitStatus::bad_input,
         "{} says that its images are {}x{}x{} (each extent must be at least 1); correct its "
         "attributes image_channels, image_height and image_width",
         source.path, *channels, *height, *width);
  }
  return ImageShape{.channels = *channels, .height = *height, .width = *width};
}

CheckpointInfo read_info(const Source& source) {
  CheckpointInfo info;
  info.mean = h5::read_floats(source.file, "mean").value_or(std::vector<float>());
  info.std = h5::read_floats(source.file, "std").value_or(std::vector<float>());
  info.classes = h5::read_number<std::int64_t>(source.file, "classes").value_or(0);
  info.class_names =
      h5::read_strings(source.file, "class_names").value_or(std::vector<std::string>());
  const auto names = static_cast<std::int64_t>(info.class_names.size());
  if (info.classes > 0 && names > info.classes) {
    fail(ExitStatus::bad_input,
         "{} has {} class_names for {} classes (a name needs an output); correct its attributes",
         source.path, names, info.classes);
  }
  info.image = read_image(source);
  if (h5::exists(source.file, "/state")) {
    info.state = read_state(source, h5::open_group(source.file, "/state"));
  } else if (source.use == CheckpointUse::resume) {
    fail(ExitStatus::bad_input, "{} has no group /state (it holds only weights); use --init-from",
         source.path);
  }
  return info;
}

std::map<std::string, std::vector<CheckpointReader::Tensor>> list_slots(const Source& source) {
  std::map<std::string, std::vector<CheckpointReader::Tensor>> slots;
  if (!h5::exists(source.file, format::optimizer_group)) {
    if (source.use == CheckpointUse::weights) return slots;
    fail(ExitStatus::bad_input, "{} has no group {} (it is not complete); use --init-from",
         source.path, format::optimizer_group);
  }
  for (const std::string& slot : h5::children(source.file, format::optimizer_group)) {
    slots.emplace(slot, list_tensors(source, slot_group(slot)));
  }
  return slots;
}

/// Of a text that is a JSON list of one type; otherwise empty.
template <typename T>
std::vector<T> list_of(const std::optional<Json>& value) {
  std::vector<T> list;
  if (!value || !value->is_array()) return list;
  for (const Json& each : *value) {
    const bool fits = std::is_same_v<T, std::string> ? each.is_string() : each.is_number();
    if (!fits) return {};
    list.push_back(each.get<T>());
  }
  return list;
}

/// Runs `work()`; if memory runs out, blames the shapes in the file.
template <typename Work>
auto within_memory(const std::string& path, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    if (address_space_limit()) throw;  // the limit may be the reason, and is named
    fail(ExitStatus::bad_input,
         "{} asks for more memory than there is (its shapes are too large); it may be damaged",
         path);
  }
}

}  // namespace

CheckpointReader::CheckpointReader(const FilePath& path, CheckpointUse use) : use_(use) {
  // A link that stands for a file is a user's; beneath a run directory none is followed.
  const FilePath named = path.follows_links() ? follow_file_link(path.text()) : path;
  path_ = named.text();
  refuse_saved_model(path_);
  within_memory(path_, [&] {
    weights_ = WeightsFile::open(named);
    if (weights_) take_weights();
  });
  if (weights_) return;
  file_ = h5::open_file(named);
  within_memory(path.text(), [this] { read_all_but_values(); });
}

void CheckpointReader::take_weights() {
  if (use_ == CheckpointUse::resume) {
    fail(ExitStatus::bad_input,
         "{} holds only weights, of another program (a run resumes from its own checkpoints); use "
         "--init-from",
         path_);
  }
  const auto take = [](const std::vector<WeightsFile::Tensor>& tensors) {
    std::vector<Tensor> taken;
    taken.reserve(tensors.size());
    for (const WeightsFile::Tensor& tensor : tensors) {
      taken.push_back({.name = tensor.name, .shape = tensor.shape, .stored_as = tensor.stored_as});
    }
    return taken;
  };
  model_ = take(weights_->model());
  ema_ = take(weights_->average());
  constexpr std::array heads{"fc.weight", "heads.head.weight"};  // of torchvision's networks
  for (const Tensor& tensor : model_) {
    if (std::ranges::find(heads, tensor.name) == heads.end() || tensor.shape.rank() != 2) continue;
    info_.classes = tensor.shape[0];
  }
  const auto value = [this](const char* key) {
    const auto found = weights_->metadata().find(key);
    return found == weights_->metadata().end() ? std::nullopt : parse_json(found->second);
  };
  info_.mean = list_of<float>(value("mean"));
  info_.std = list_of<float>(value("std"));
  info_.class_names = list_of<std::string>(value("class_names"));
  const auto classes = value("classes");
  if (classes && classes->is_number_integer()) info_.classes = classes->get<std::int64_t>();
  const auto input = list_of<std::int64_t>(value("input"));
  if (input.size() == 3 && std::ranges::min(input) > 0) {
    info_.image = ImageShape{.channels = input[0], .height = input[1], .width = input[2]};
  }
}

void CheckpointReader::read_all_but_values() {
  const Source source{.file = file_, .path = path_, .use = use_};
  check_format(source);
  info_ = read_info(source);
  model_ = list_tensors(source, model_group);
  if (model_.empty()) {
    fail(ExitStatus::bad_input, "{}:{} is empty (it holds no weights); use another file", path_,
         model_group);
  }
  if (h5::exists(file_, ema_group)) ema_ = list_tensors(source, ema_group);
  optimizer_ = list_slots(source);
  check_total();
}

/// Objects of several names may share values.
void CheckpointReader::check_total() const {
  constexpr double best_compression = 1032;  // of deflate
  double elements = 0;
  const auto add = [&](const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) elements += static_cast<double>(tensor.shape.elements());
  };
  add(model_);
  add(ema_);
  for (const auto& [slot, tensors] : optimizer_) add(tensors);
  const auto bytes = static_cast<double>(h5::file_bytes(file_));
  if (elements <= bytes * best_compression) return;
  fail(ExitStatus::bad_input,
       "{} says that it holds {:.0f} values in {:.0f} bytes (they would be stored several times "
       "over); it is damaged",
       path_, elements, bytes);
}

std::vector<float> CheckpointReader::read(const std::string& group, const Tensor& tensor) const {
  return within_memory(path_, [&] {
    if (weights_) {
      return group == ema_group ? weights_->read_average(tensor.name)
                                : weights_->read_model(tensor.name);
    }
    std::vector<float> values;
    read_pieces({file_, path_, use_}, group + "/" + tensor.name, [&](std::span<const float> piece) {
      if (values.empty()) values.reserve(static_cast<std::size_t>(tensor.shape.elements()));
      values.insert(values.end(), piece.begin(), piece.end());
    });
    return values;
  });
}

void CheckpointReader::verify() const {
  if (weights_) return within_memory(path_, [this] { weights_->verify(); });
  const auto verify_all = [this](const std::string& group, const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) {
      within_memory(path_, [&] {
        read_pieces({file_, path_, use_}, group + "/" + tensor.name, [](std::span<const float>) {});
      });
    }
  };
  verify_all(model_group, model());
  verify_all(ema_group, ema());
  for (const auto& [slot, tensors] : optimizer()) verify_all(slot_group(slot), tensors);
}

Checkpoint read_checkpoint(const FilePath& path, CheckpointUse use) {
  const CheckpointReader reader(path, use);
  const auto read_all = [&](const std::string& group,
                            const std::vector<CheckpointReader::Tensor>& tensors) {
    std::vector<NamedTensor> all;
    all.reserve(tensors.size());
    for (const CheckpointReader::Tensor& tensor : tensors) {
      all.push_back(
          {.name = tensor.name, .shape = tensor.shape, .values = reader.read(group, tensor)});
    }
    return all;
  };
  Checkpoint checkpoint;
  static_cast<CheckpointInfo&>(checkpoint) = reader.info();
  checkpoint.model = read_all(model_group, reader.model());
  checkpoint.ema = read_all(ema_group, reader.ema());
  for (const auto& [slot, tensors] : reader.optimizer()) {
    checkpoint.optimizer.emplace(slot, read_all(slot_group(slot), tensors));
  }
  return checkpoint;
}

}  // namespace lockstep
