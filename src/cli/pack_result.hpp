#pragma once

#include "lockstep/data/pack.hpp"

#include <cstdint>
#include <string>

namespace lockstep::cli {

struct PackedTo {
  std::string output;  ///< directory, as the user gave it
  bool json = false;
  std::int64_t short_side = 0;  ///< 0: images kept their size
  double seconds = 0;
};
/// Prints what was packed and what became of each entry of the input.
void print_packed(const PackResult& result, const PackedTo& to);

/// Warns if images were skipped, or entries that look like data were left out.
void warn_of_left_out(const PackResult& result, const std::string& output);

}  // namespace lockstep::cli
