#include "lockstep/data/cifar.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

CifarBatch parse_cifar(std::span<const std::byte> bytes, const CifarLayout& layout,
                       const std::string& name) {
  constexpr std::size_t plane = cifar_side * cifar_side;
  constexpr std::size_t pixels = plane * cifar_channels;
  const std::size_t label_bytes = static_cast<std::size_t>(layout.label_bytes);
  const std::size_t record = label_bytes + pixels;
  if (bytes.empty() || bytes.size() % record != 0) {
    fail(ExitStatus::bad_input,
         "{}: {} bytes is not a whole number of records of {} bytes (truncated, or not the binary "
         "version of CIFAR-{}); fetch it again",
         name, bytes.size(), record, layout.classes);
  }
  const std::size_t count = bytes.size() / record;
  CifarBatch batch;
  batch.labels.resize(count);
  batch.images.resize(count * pixels);
  for (std::size_t i = 0; i < count; ++i) {
    const auto source = bytes.subspan(i * record, record);
    const auto label = std::to_integer<std::uint8_t>(source[label_bytes - 1]);
    if (label >= layout.classes) {
      fail(ExitStatus::bad_input,
           "{}: sample {} has label {} (CIFAR-{} has labels 0 to {}); fetch the file again", name,
           i, label, layout.classes, layout.classes - 1);
    }
    batch.labels[i] = label;
    std::byte* image = batch.images.data() + i * pixels;
    for (std::size_t pixel = 0; pixel < plane; ++pixel) {
      for (std::size_t channel = 0; channel < cifar_channels; ++channel) {
        *image++ = source[label_bytes + channel * plane + pixel];
      }
    }
  }
  return batch;
}

}  // namespace lockstep
