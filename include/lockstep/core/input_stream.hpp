#pragma once

#include "lockstep/core/descriptor.hpp"

#include <cstdint>
#include <istream>
#include <streambuf>
#include <string>
#include <vector>

namespace lockstep {

/// Of the text of a run's files.
inline constexpr std::uint64_t max_line_bytes = std::uint64_t{1} << 26;

/// Reads an open text file from its beginning, piece by piece. Each reading throws: Error(
/// status_of_read_failure()), and Error(bad_input) for a line longer than max_line_bytes.
class InputStream final : public std::istream {
 public:
  /// `path` names it in messages.
  InputStream(Descriptor file, std::string path);

 private:
  class Buffer final : public std::streambuf {
   public:
    Buffer(Descriptor file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

   private:
    int_type underflow() override;

    Descriptor file_;
    std::string path_;
    std::uint64_t offset_ = 0;
    std::uint64_t line_ = 0;  ///< where the last line begins
    std::vector<char> bytes_ = std::vector<char>(std::size_t{1} << 16);
  };
  Buffer buffer_;
};

/// Error(bad_input) for such a line.
void require_line(const std::string& path, std::uint64_t bytes);

}  // namespace lockstep
