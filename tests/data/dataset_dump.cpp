#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/crc32c.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/dataset.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>

namespace {

using namespace lockstep;

void dump(const std::string& directory) {
  const auto comm = make_self_communicator();
  const auto dataset = open_dataset(directory, "train", *comm);
  const DatasetInfo& info = dataset->info();
  fmt::print("samples {} classes {} image {}x{}x{} notes {}\n", info.samples, info.classes,
             info.image.height, info.image.width, info.image.channels, info.notes.size());
  RawSample sample;
  std::uint32_t checksum = 0;
  const std::int64_t step = std::max<std::int64_t>(1, info.samples / 1000);
  for (std::int64_t i = 0; i < info.samples; i += step) {
    dataset->read(i, sample);
    checksum = crc32c(std::as_bytes(std::span(&sample.label, 1)), crc32c(sample.bytes, checksum));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("crc {:08x}\npeak {}\n", checksum, usage.ru_maxrss);
  for (const std::string& note : info.notes) fmt::print("{}\n", note);
}

}  // namespace

/// Prints what the reader finds in split `train` of a directory: a line of properties, the CRC-32C
/// of up to 1000 evenly spaced samples, the peak memory in KiB, then the notes. Exits with the
/// status of an error, as the program does.
int main(int, char** arguments) {
  try {
    dump(arguments[1]);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}
