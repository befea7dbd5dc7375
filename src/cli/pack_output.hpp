#pragma once

#include "lockstep/data/pack.hpp"

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::cli {

/// Progress of packing, estimated for all ranks from rank 0's, on standard error: a live bar on a
/// terminal, else a line per 10 %, at most one per second.
class PackProgress final {
 public:
  PackProgress();
  ~PackProgress();  ///< clears the bar
  PackProgress(const PackProgress&) = delete;
  PackProgress& operator=(const PackProgress&) = delete;

  void update(const PackedSoFar& packed);

 private:
  using Clock = std::chrono::steady_clock;
  bool bar_;
  bool drawn_ = false;
  std::int64_t tenth_ = 0;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
};

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
