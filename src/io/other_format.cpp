#include "lockstep/io/other_format.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace lockstep {
namespace {

using namespace std::string_view_literals;

constexpr const char* conversion =
    "convert it to HDF5 as in docs/file-formats.md, \"Weights of other programs\"";
constexpr const char* unpacking = "unpack it, and give the file that is in it";
constexpr const char* arrays =
    "write its arrays with h5py, under the names in docs/file-formats.md";

constexpr const char* weights = "--init-from and eval --checkpoint read it";

OtherFormat torch_save() {
  return {.kind = "a file of PyTorch's torch.save", .advice = weights};
}

bool has(std::string_view text, std::string_view part) noexcept {
  return text.find(part) != std::string_view::npos;
}

std::uint64_t number_at(std::string_view bytes, std::size_t offset, std::size_t size) noexcept {
  std::uint64_t value = 0;
  if (offset + size <= bytes.size()) std::memcpy(&value, bytes.data() + offset, size);
  return value;
}

/// Zip archives are told apart by the names of their members.
std::optional<OtherFormat> zip_format(const FileStart& file) {
  if (!file.bytes.starts_with("PK\x03\x04")) return std::nullopt;
  constexpr std::size_t header = 30;
  const std::string_view rest =
      file.bytes.size() < header ? std::string_view() : file.bytes.substr(header);
  const std::string_view first = rest.substr(0, number_at(file.bytes, 26, 2));
  if (first.ends_with(".npy")) return {{.kind = "a NumPy archive (.npz)", .advice = arrays}};
  if (first.ends_with("/data/0") || has(first, "/code/")) {
    return {{.kind = "a TorchScript archive", .advice = conversion}};
  }
  if (has(rest, "data.pkl")) return torch_save();
  if (has(rest, "model.weights.h5") || (has(rest, "config.json") && has(rest, "metadata.json"))) {
    return {{.kind = "a Keras model (.keras)", .advice = conversion}};
  }
  return {{.kind = "a zip archive", .advice = unpacking}};
}

std::optional<OtherFormat> pickle_format(const FileStart& file) {
  const std::string_view bytes = file.bytes;
  if (bytes.size() < 3 || bytes[0] != '\x80' || bytes[1] < 2 || bytes[1] > 5) return std::nullopt;
  // torch's magic number as a pickled integer of ten bytes.
  if (bytes.substr(2).starts_with("\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv)) {
    return torch_save();
  }
  return {{.kind = "a Python pickle", .advice = conversion}};
}

std::optional<OtherFormat> safetensors_format(const FileStart& file) {
  const std::uint64_t header = number_at(file.bytes, 0, 8);
  if (file.bytes.size() < 10 || header < 2 || header > file.size - 8) return std::nullopt;
  if (file.bytes[8] != '{' || (file.bytes[9] != '"' && file.bytes[9] != '}')) return std::nullopt;
  return {{.kind = "a safetensors file", .advice = weights}};
}

/// A ModelProto: the version of its format, then a field of those that follow it.
std::optional<OtherFormat> onnx_format(const FileStart& file) {
  constexpr std::string_view next_fields = "\x12\x1a\x22\x28\x32\x3a\x42"sv;
  const std::string_view bytes = file.bytes;
  if (bytes.size() < 3 || bytes[0] != '\x08' || bytes[1] < 1 || bytes[1] > 30) return std::nullopt;
  if (!has(next_fields, bytes.substr(2, 1))) return std::nullopt;
  return {{.kind = "an ONNX model", .advice = conversion}};
}

std::optional<OtherFormat> tar_format(const FileStart& file) {
  constexpr std::size_t mark = 257;
  if (file.bytes.size() < mark + 5 || !file.bytes.substr(mark).starts_with("ustar")) {
    return std::nullopt;
  }
  for (const std::string_view name :
       {"sys_info\0"sv, "pickle\0"sv, "storages\0"sv, "tensors\0"sv}) {
    if (!file.bytes.starts_with(name)) continue;
    return {{.kind = "a file of PyTorch's torch.save, of before 2017",
             .advice = "load and save it with a newer PyTorch"}};
  }
  return {{.kind = "a tar archive", .advice = unpacking}};
}

struct Mark {
  std::size_t offset;
  std::string_view bytes;
  const char* kind;
  const char* advice;
};
constexpr std::array marks{
    Mark{0, "\x93NUMPY"sv, "a NumPy array (.npy)", arrays},
    Mark{0, "\x1f\x8b"sv, "a gzip file", unpacking},
    Mark{0, "BZh"sv, "a bzip2 file", unpacking},
    Mark{0, "\xfd\x37zXZ\0"sv, "an xz file", unpacking},
    Mark{0, "\x28\xb5\x2f\xfd"sv, "a zstd file", unpacking},
    Mark{0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive", unpacking},
    Mark{0, "Rar!\x1a\x07"sv, "a RAR archive", unpacking},
    Mark{4, "TFL3"sv, "a TensorFlow Lite model", conversion},
    Mark{0, "GGUF"sv, "a GGUF model", conversion},
    Mark{0, "\xff\xd8\xff"sv, "a JPEG image", "pack images with lockstep pack"},
    Mark{0, "\x89PNG\r\n\x1a\n"sv, "a PNG image", "pack images with lockstep pack"},
    Mark{0, "MATLAB 5.0 MAT-file"sv, "a MATLAB file", arrays},
    Mark{0, "version https://git-lfs.github.com/spec"sv,
         "a pointer of Git LFS, in place of the file", "fetch the file: git lfs pull"},
};

std::optional<OtherFormat> marked_format(const FileStart& file) {
  for (const Mark& mark : marks) {
    if (file.bytes.size() < mark.offset ||
        !file.bytes.substr(mark.offset).starts_with(mark.bytes)) {
      continue;
    }
    return {{.kind = mark.kind, .advice = mark.advice}};
  }
  return std::nullopt;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

/// By the name: formats without a mark.
std::optional<OtherFormat> named_format(const FileStart& file) {
  struct Ending {
    std::string_view text;
    const char* kind;
  };
  constexpr std::array endings{
      Ending{".onnx", "an ONNX model"},
      Ending{".pb", "a TensorFlow graph"},
      Ending{".index", "part of a TensorFlow checkpoint"},
      Ending{".meta", "part of a TensorFlow checkpoint"},
      Ending{".tflite", "a TensorFlow Lite model"},
      Ending{".caffemodel", "a Caffe model"},
      Ending{".mlmodel", "a Core ML model"},
      Ending{".msgpack", "a msgpack file, as Flax writes it"},
      Ending{".t7", "a file of Lua's Torch"},
      Ending{".params", "a file of MXNet"},
  };
  const std::string path = lower(file.path);
  for (const Ending& ending : endings) {
    if (path.ends_with(ending.text)) {
      return {{.kind = fmt::format("{}, by its name", ending.kind), .advice = conversion}};
    }
  }
  if (has(path, ".data-0")) {
    return {{.kind = "part of a TensorFlow checkpoint, by its name", .advice = conversion}};
  }
  return std::nullopt;
}

std::optional<OtherFormat> text_format(const FileStart& file) {
  std::string_view text = file.bytes.substr(0, 512);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const auto is_text = [](unsigned char c) {
    return (c >= 0x20 && c != 0x7f) || c == '\n' || c == '\r' || c == '\t';
  };
  if (text.empty() || !std::ranges::all_of(text, is_text)) return std::nullopt;
  const std::size_t begin = text.find_first_not_of(" \r\n\t");
  if (begin == std::string_view::npos) return {{.kind = "blank", .advice = "check the path"}};
  text.remove_prefix(begin);
  const std::string start = lower(text.substr(0, 14));
  if (start.starts_with("<!doctype html") || start.starts_with("<html")) {
    return {{.kind = "a web page (HTML)",
             .advice = "download the file itself, not the page that shows it"}};
  }
  // Not with its words: a link may have led to a file that is not for whoever reads the message.
  return {{.kind = "text", .advice = "check the path"}};
}

bool begins_as_hdf5(std::string_view bytes) noexcept {
  constexpr std::string_view signature = "\x89HDF\r\n\x1a\n"sv;
  for (const std::size_t offset : {0, 512, 1024, 2048}) {
    if (offset < bytes.size() && bytes.substr(offset).starts_with(signature)) return true;
  }
  return false;
}

}  // namespace

std::optional<OtherFormat> other_format(const FileStart& file) {
  if (file.size == 0 || file.bytes.empty()) {
    return {{.kind = "empty", .advice = "copy or write it again"}};
  }
  if (begins_as_hdf5(file.bytes)) return std::nullopt;
  for (const auto& judge : {zip_format, pickle_format, marked_format, tar_format,
                            safetensors_format, onnx_format, named_format, text_format}) {
    if (auto found = judge(file)) return found;
  }
  return std::nullopt;
}

void refuse_saved_model(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(std::filesystem::path(path) / "saved_model.pb", ignored)) return;
  fail(ExitStatus::bad_input, "{} is a SavedModel of TensorFlow (HDF5 is read); {}", path,
       conversion);
}

void refuse_keras(const h5::Object& file, const std::string& path) {
  const bool is_keras = h5::exists(file, "model_weights") || h5::exists(file, "layers") ||
                        h5::exists(file, "_layer_checkpoint_dependencies") ||
                        h5::has_attribute(file, "layer_names") ||
                        h5::has_attribute(file, "keras_version");
  if (!is_keras) return;
  fail(ExitStatus::bad_input,
       "{} is an HDF5 file of Keras (its layers have other names and layouts); {}", path,
       conversion);
}

}  // namespace lockstep
