#include "lockstep/core/json.hpp"
#include "lockstep/core/little_endian.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/export/formats.hpp"
#include "metadata.hpp"
#include "state_dict.hpp"

#include <algorithm>

namespace lockstep {
namespace {

Json describe(const StateTensor& tensor, std::uint64_t begin) {
  return {{"dtype", tensor.type == ElementType::float32 ? "F32" : "I64"},
          {"shape", tensor.shape.extents()},
          {"data_offsets", {begin, begin + tensor.values.size()}}};
}

}  // namespace

FileParts safetensors_file(const TrainedModel& model) {
  std::vector<StateTensor> tensors = state_dict(model);
  // Wider elements first, so that each tensor is aligned.
  std::stable_partition(tensors.begin(), tensors.end(), [](const StateTensor& tensor) {
    return tensor.type == ElementType::int64;
  });
  Json header;
  header["__metadata__"]["format"] = "pt";
  header["__metadata__"]["producer"] = "lockstep " + version();
  for (const auto& [name, value] : metadata(model)) header["__metadata__"][name] = value;
  std::uint64_t offset = 0;
  for (const StateTensor& tensor : tensors) {
    header[tensor.name] = describe(tensor, offset);
    offset += tensor.values.size();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t alignment = 8;
  text.resize((text.size() + alignment - 1) / alignment * alignment, ' ');
  FileParts parts{{.bytes = little_endian(std::uint64_t{text.size()}) + text}};
  for (StateTensor& tensor : tensors) parts.push_back(std::move(tensor.values));
  return parts;
}

}  // namespace lockstep
