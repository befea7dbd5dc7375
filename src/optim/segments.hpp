#pragma once

#include "lockstep/engine/arena.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// Below this many values one thread is faster than waking the others.
inline constexpr std::size_t smallest_parallel_size = 16384;

/// One tensor of the arena, with its update options.
struct Segment {
  std::size_t begin;
  std::size_t end;
  float weight_decay;
  double lr_scale;  ///< 0: frozen
  bool adapts;      ///< LARS scales its step by the tensor's norms
  [[nodiscard]] bool is_frozen() const noexcept { return lr_scale == 0; }
  [[nodiscard]] bool is_large() const noexcept { return end - begin >= smallest_parallel_size; }
};

[[nodiscard]] inline std::vector<Segment> make_segments(const ArenaLayout& layout,
                                                        double weight_decay,
                                                        bool decay_norm_and_bias) {
  std::vector<Segment> segments;
  for (const ArenaView& view : layout.views) {
    const bool is_weight = view.kind == ParameterKind::weight;
    segments.push_back(
        {.begin = view.offset,
         .end = view.end(),
         .weight_decay = is_weight || decay_norm_and_bias ? static_cast<float>(weight_decay) : 0.0F,
         .lr_scale = view.lr_scale,
         .adapts = is_weight && view.lr_scale != 0});
  }
  return segments;
}

/// The segments within [begin, end), both segment boundaries; includes empty ones at both ends.
[[nodiscard]] inline std::span<const Segment> segments_in(const std::vector<Segment>& segments,
                                                          std::size_t begin, std::size_t end) {
  const auto first =
      std::lower_bound(segments.begin(), segments.end(), begin,
                       [](const Segment& s, std::size_t at) { return s.begin < at; });
  const auto last = std::lower_bound(first, segments.end(), end,
                                     [](const Segment& s, std::size_t at) { return s.end <= at; });
  assert(first == last || (last - 1)->end <= end);
  return {first, last};
}

}  // namespace lockstep
