#pragma once

#include "lockstep/core/philox.hpp"
#include "lockstep/data/sample_order.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// The blocks that stochastic depth drops for a sample, as in Batch::dropped, given each block's
/// probability. A pure function of its arguments, so a run can resume anywhere.
[[nodiscard]] inline std::uint64_t draw_dropped_blocks(std::span<const float> probabilities,
                                                       std::uint64_t seed, std::int64_t epoch,
                                                       SampleCopy sample) noexcept {
  PhiloxStream random(seed, RandomPurpose::stochastic_depth, sample.key(),
                      static_cast<std::uint32_t>(epoch));
  std::uint64_t dropped = 0;
  for (std::size_t block = 0; block < probabilities.size(); ++block) {
    if (random.next_float() < probabilities[block]) dropped |= std::uint64_t{1} << block;
  }
  return dropped;
}

}  // namespace lockstep
