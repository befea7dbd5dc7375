#pragma once

#include "lockstep/core/error.hpp"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

/// Common code of the targets. A target passes its bytes to a reader, which may refuse them only
/// with an Error: any other exception ends the run as a finding.
namespace lockstep::fuzz {

using Bytes = std::span<const std::uint8_t>;

/// Runs `reader`; returns false if it refused its input.
template <typename Reader>
bool accepts(Reader&& reader) {
  try {
    reader();
  } catch (const Error& error) {
    // An error text must be readable as a string and must not be empty.
    if (error.what()[0] == '\0') __builtin_trap();
    return false;
  }
  return true;
}

/// Keeps the optimizer from dropping a read that the sanitizers should check.
inline void use(std::span<const std::byte> bytes) {
  volatile std::uint8_t sum = 0;
  for (const std::byte byte : bytes) {
    sum = static_cast<std::uint8_t>(sum + std::to_integer<std::uint8_t>(byte));
  }
}

/// A directory in memory for this process only, removed at its end.
class Scratch final {
 public:
  Scratch() {
    namespace fs = std::filesystem;
    const fs::path root = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    path_ = (root / ("lockstep-fuzz-" + std::to_string(::getpid()))).string();
    fs::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Replaces file `name` by `bytes`; returns its path.
  [[nodiscard]] std::string write(const std::string& name, Bytes bytes) const {
    const std::string file = path_ + "/" + name;
    std::ofstream(file, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return file;
  }

 private:
  std::string path_;
};

/// With LOCKSTEP_PLANTED_OVERFLOW the harness itself reads past the end of inputs that begin with
/// "!". scripts/fuzz checks that this is reported as a finding.
inline void plant([[maybe_unused]] Bytes bytes) {
#ifdef LOCKSTEP_PLANTED_OVERFLOW
  if (!bytes.empty() && bytes[0] == '!') {
    const std::uint8_t* copy = new std::uint8_t[bytes.size()]{};
    volatile std::uint8_t beyond = copy[bytes.size()];
    static_cast<void>(beyond);
    delete[] copy;
  }
#endif
}

/// Runs one input. Each target defines it.
void run(Bytes bytes);

}  // namespace lockstep::fuzz

/// libFuzzer's entry point for a target that defines run().
#define LOCKSTEP_FUZZ_ENTRY                                                           \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) { \
    lockstep::fuzz::plant({data, size});                                              \
    lockstep::fuzz::run({data, size});                                                \
    return 0;                                                                         \
  }
