#pragma once

#include "lockstep/core/vectors.hpp"

#include <array>

namespace lockstep::cpu {

// Winograd's algorithm for a 3x3 filter computes an `outputs` x `outputs` tile of the result from
// `points` x `points` values of the source: each is transformed, multiplied point by point, summed
// over the channels, and transformed back (Lavin and Gray, "Fast Algorithms for Convolutional
// Neural Networks", 2015). It evaluates polynomials at the points below and at infinity. The
// transforms here are along one axis, of vectors that hold one value per channel:
//
//   of_source    B^T: points values of the source
//   of_filter    G:   3 values of the filter
//   to_result    A^T: points products to `outputs` values
// and for the gradient of the filter, their transposes:
//   of_gradient  A:   `outputs` values of the result's gradient
//   to_filter    G^T: points products to 3 values
template <int outputs>
struct WinogradTransforms;

/// Points 0, 1, -1, infinity: 16 products instead of 36.
template <>
struct WinogradTransforms<2> {
  static constexpr int points = 4;

  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 4> of_source(const std::array<V, 4>& d) {
    return {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[3] - d[1]};
  }
  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 4> of_filter(const std::array<V, 3>& g) {
    const V even = (g[0] + g[2]) * 0.5F;
    const V odd = g[1] * 0.5F;
    return {g[0], even + odd, even - odd, g[2]};
  }
  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 2> to_result(const std::array<V, 4>& m) {
    return {m[0] + m[1] + m[2], m[1] - m[2] + m[3]};
  }
  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 4> of_gradient(const std::array<V, 2>& d) {
    return {d[0], d[0] + d[1], d[0] - d[1], d[1]};
  }
  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 3> to_filter(const std::array<V, 4>& m) {
    const V even = (m[1] + m[2]) * 0.5F;
    return {m[0] + even, (m[1] - m[2]) * 0.5F, even + m[3]};
  }
};

/// Points 0, a, -a, b, -b, infinity: 36 products instead of 144. With a = 5/8 and b = 3/2, errors
/// are 0.4 times those of the textbook's 1 and 2.
template <>
struct WinogradTransforms<4> {
  static constexpr int points = 6;

  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 6> of_source(const std::array<V, 6>& d) {
    const V even_a = d[4] - d[2] * b2;
    const V odd_a = (d[3] - d[1] * b2) * a;
    const V even_b = d[4] - d[2] * a2;
    const V odd_b = (d[3] - d[1] * a2) * b;
    return {d[0] * (a2 * b2) - d[2] * (a2 + b2) + d[4],
            even_a + odd_a,
            even_a - odd_a,
            even_b + odd_b,
            even_b - odd_b,
            d[1] * (a2 * b2) - d[3] * (a2 + b2) + d[5]};
  }
  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 6> of_filter(const std::array<V, 3>& g) {
    const V even_a = (g[0] + g[2] * a2) * at_a;
    const V odd_a = g[1] * (a * at_a);
    const V even_b = (g[0] + g[2] * b2) * at_b;
    const V odd_b = g[1] * (b * at_b);
    return {g[0] * at_0, even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, g[2]};
  }
  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 4> to_result(const std::array<V, 6>& m) {
    const V sum_a = m[1] + m[2];
    const V sum_b = m[3] + m[4];
    const V difference_a = (m[1] - m[2]) * a;
    const V difference_b = (m[3] - m[4]) * b;
    return {m[0] + sum_a + sum_b, difference_a + difference_b, sum_a * a2 + sum_b * b2,
            difference_a * a2 + difference_b * b2 + m[5]};
  }
  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 6> of_gradient(const std::array<V, 4>& d) {
    const V even_a = d[0] + d[2] * a2;
    const V odd_a = (d[1] + d[3] * a2) * a;
    const V even_b = d[0] + d[2] * b2;
    const V odd_b = (d[1] + d[3] * b2) * b;
    return {d[0], even_a + odd_a, even_a - odd_a, even_b + odd_b, even_b - odd_b, d[3]};
  }
  template <typename V>
  LOCKSTEP_INLINED static std::array<V, 3> to_filter(const std::array<V, 6>& m) {
    const V sum_a = (m[1] + m[2]) * at_a;
    const V sum_b = (m[3] + m[4]) * at_b;
    const V difference_a = (m[1] - m[2]) * (a * at_a);
    const V difference_b = (m[3] - m[4]) * (b * at_b);
    return {m[0] * at_0 + sum_a + sum_b, difference_a + difference_b,
            sum_a * a2 + sum_b * b2 + m[5]};
  }

 private:
  static constexpr float a = 0.625F;
  static constexpr float b = 1.5F;
  static constexpr float a2 = a * a;
  static constexpr float b2 = b * b;
  // Scales of the filter: 1 / product of the differences from the other points.
  static constexpr float at_0 = 1 / (a2 * b2);
  static constexpr float at_a = 1 / (2 * a2 * (a2 - b2));
  static constexpr float at_b = 1 / (2 * b2 * (b2 - a2));
};

}  // namespace lockstep::cpu
