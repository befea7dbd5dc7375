#include "lockstep/weights/weights_file.hpp"

#include "fuzz.hpp"
#include "weights/unpickle.hpp"

#include <cmath>

namespace lockstep::fuzz {

void check(const WeightsFile::Tensor& tensor, const std::vector<float>& values) {
  if (values.size() != static_cast<std::size_t>(tensor.shape.elements())) __builtin_trap();
  for (const float value : values) {
    if (!std::isfinite(value)) __builtin_trap();
  }
}

/// A pickle alone, since a change in an archive rarely reaches its own, and a whole file.
void run(Bytes bytes) {
  static const Scratch scratch;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  accepts([&] { static_cast<void>(pickle::unpickle(text, "file")); });
  const std::string path = scratch.write("weights", bytes);
  accepts([&] {
    const std::optional<WeightsFile> file = WeightsFile::open(path);
    if (!file) return;
    for (const WeightsFile::Tensor& tensor : file->model()) {
      accepts([&] { check(tensor, file->read_model(tensor.name)); });
    }
    for (const WeightsFile::Tensor& tensor : file->average()) {
      accepts([&] { check(tensor, file->read_average(tensor.name)); });
    }
    file->verify();
  });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
