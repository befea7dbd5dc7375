#pragma once

#include "lockstep/data/pack.hpp"

#include <chrono>
#include <cstdint>

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

}  // namespace lockstep::cli
