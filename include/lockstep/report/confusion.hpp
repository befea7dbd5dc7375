#pragma once

#include "lockstep/core/file_path.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::report {

/// What `lockstep eval --confusion` wrote.
struct Confusion {
  struct Cell {
    std::int32_t truth = 0;
    std::int32_t predicted = 0;
    std::int64_t count = 0;
  };
  std::vector<std::string> classes;
  std::vector<std::int64_t> samples;  ///< of each true class
  std::vector<std::int64_t> hits;     ///< the diagonal
  std::vector<Cell> errors;           ///< off the diagonal, without zeros; the most frequent ones
  std::int64_t dropped = 0;           ///< errors that are not kept
};

/// Errors that a page shows.
constexpr std::size_t most_errors = 20'000;

/// Keeps at most `most` errors. Error(no_input) or Error(bad_input), with the line.
[[nodiscard]] Confusion read_confusion(const FilePath& path, std::size_t most);

}  // namespace lockstep::report
