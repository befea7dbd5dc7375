#pragma once

#include "lockstep/core/file_path.hpp"
#include "lockstep/core/function_ref.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

/// Reads a file to which another process appends lines.
class LineFollower final {
 public:
  explicit LineFollower(FilePath path) : path_(std::move(path)) {}

  /// Calls `use` with each line that was completed since the last call. False if the file was
  /// truncated or replaced since; the next call then starts at the beginning. Error(no_input),
  /// and as InputStream.
  [[nodiscard]] bool read(FunctionRef<void(std::string_view line)> use);
  /// The last line if it has no end yet.
  [[nodiscard]] const std::string& rest() const noexcept { return rest_; }

 private:
  void split(std::string_view block, FunctionRef<void(std::string_view line)> use);

  FilePath path_;
  std::uint64_t offset_ = 0;
  std::string end_;  ///< the last bytes that were read: they differ in a file that was replaced
  std::string rest_;
};

}  // namespace lockstep
