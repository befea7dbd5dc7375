#pragma once

#include "lockstep/core/batch.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_memory.hpp"
#include "lockstep/data/loader.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

/// One batch of a loader's ring.
struct LoaderSlot {
  HostBuffer<float> images;         ///< for engines that take values
  HostBuffer<std::uint8_t> pixels;  ///< for engines that take pixels
  HostBuffer<PixelCut> cuts;
  HostBuffer<std::int32_t> labels;
  HostBuffer<PixelBox> erased;        ///< for engines that take pixels; empty: no erasing
  std::vector<EncodedImage> encoded;  ///< empty: the engine decodes no files
  std::vector<std::vector<std::byte>> files;
  HostBuffer<ImageMix> mixes;           ///< empty: no mixing
  HostBuffer<std::uint64_t> dropped;    ///< empty: no stochastic depth
  std::optional<BatchRequest> request;  ///< nullopt: end of the plan
  std::int64_t assigned = 0;            ///< samples assigned to a thread
  std::int64_t finished = 0;
  std::int64_t failed_sample = std::numeric_limits<std::int64_t>::max();
  std::optional<Error> error;  ///< error of failed_sample, the first in batch order

  [[nodiscard]] std::int64_t count() const noexcept { return request ? request->count : 0; }
  void note(std::int64_t sample, Error failure) {
    if (sample >= failed_sample) return;
    failed_sample = sample;
    error.emplace(std::move(failure));
  }
};

}  // namespace lockstep
