#pragma once

#include "lockstep/optim/optimizer.hpp"
#include "segments.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

/// The two norms from which the trust ratio of an adapting tensor is computed: of its weights, and
/// of what moves them. Of whole tensors also if they are sharded.
class TensorNorms final {
 public:
  /// `segments`, those of `layout`, must outlive the norms.
  TensorNorms(const ArenaLayout& layout, const std::vector<Segment>& segments,
              SumOverRanks sum_over_shards)
      : segments_(segments),
        is_sharded_(layout.is_sharded()),
        sum_over_shards_(std::move(sum_over_shards)),
        squares_(2 * segments.size()) {}

  [[nodiscard]] bool is_sharded() const noexcept { return is_sharded_; }
  [[nodiscard]] double of_weights(const Segment& segment) const {
    return std::sqrt(squares_[at(segment)]);
  }
  [[nodiscard]] double of_moves(const Segment& segment) const {
    return std::sqrt(squares_[at(segment) + 1]);
  }

  /// Takes the norms in [begin, end); `squares_of_moves(segment, parameters)` returns the sum of
  /// squares of what moves a tensor.
  template <typename SquaresOfMoves>
  void take(const ParameterRange& range, SquaresOfMoves&& squares_of_moves) {
    for (const Segment& segment : segments_in(segments_, range.begin, range.end)) {
      if (!segment.adapts || segment.begin == segment.end) continue;
      squares_[at(segment)] =
          squared_norm(range.parameters.subspan(segment.begin, segment.end - segment.begin));
      squares_[at(segment) + 1] = squares_of_moves(segment, range.parameters);
    }
  }
  /// Takes the norms of all ranges of this rank and sums them over the shards. Collective.
  template <typename SquaresOfMoves>
  void take_over_shards(std::span<const ParameterRange> ranges, SquaresOfMoves&& squares_of_moves) {
    std::ranges::fill(squares_, 0.0);
    for (const ParameterRange& range : ranges) take(range, squares_of_moves);
    sum_over_shards_(squares_);
  }

 private:
  [[nodiscard]] std::size_t at(const Segment& segment) const noexcept {
    return 2 * static_cast<std::size_t>(&segment - segments_.data());
  }

  const std::vector<Segment>& segments_;
  bool is_sharded_;
  SumOverRanks sum_over_shards_;
  std::vector<double> squares_;  ///< by segment: of its weights, and of what moves them
};

}  // namespace lockstep
