#pragma once

#include "lockstep/graph/graph.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

namespace lockstep {

/// A convolution that Winograd's algorithm can compute: 3x3, stride 1, padding of at most 2, one
/// group, at least 16 input and 16 output channels (fewer would be padded to 16).
struct WinogradShape {
  std::int64_t in_channels = 0;
  std::int64_t height = 0;  ///< of the input
  std::int64_t width = 0;
  std::int64_t out_channels = 0;
  std::int64_t padding = 0;
  friend bool operator==(const WinogradShape&, const WinogradShape&) = default;
  friend bool operator<(const WinogradShape& a, const WinogradShape& b) noexcept {
    return a.values() < b.values();
  }

  /// "64x32x32 to 64, padding 1"
  [[nodiscard]] std::string text() const;

 private:
  [[nodiscard]] std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>
  values() const noexcept {
    return {in_channels, height, width, out_channels, padding};
  }
};

enum class ConvolutionStep { forward, data_gradient, weight_gradient };
inline constexpr std::array convolution_steps{
    ConvolutionStep::forward, ConvolutionStep::data_gradient, ConvolutionStep::weight_gradient};
/// "forward", "data gradient", "weight gradient"
[[nodiscard]] std::string to_string(ConvolutionStep step);

/// Empty if Winograd's algorithm cannot compute the convolution.
[[nodiscard]] std::optional<WinogradShape> winograd_shape(const Graph& graph, const Conv2d& op);

/// The algorithm of each step of each convolution shape: Winograd's or direct. Shapes that are not
/// in the table are computed directly.
class ConvolutionChoices final {
 public:
  /// Also adds the shape if it is missing.
  void set(const WinogradShape& shape, ConvolutionStep step, bool winograd);
  /// Adds the choices of `other`, which replace those of equal shapes.
  void add(const ConvolutionChoices& other);
  [[nodiscard]] bool contains(const WinogradShape& shape) const;
  [[nodiscard]] bool winograd(const WinogradShape& shape, ConvolutionStep step) const;
  [[nodiscard]] auto begin() const { return choices_.begin(); }
  [[nodiscard]] auto end() const { return choices_.end(); }

  /// One line per shape: "64x32x32 to 64, padding 1: winograd winograd direct".
  [[nodiscard]] std::string text() const;
  /// Inverse of text(); Error(bad_input) for any other text.
  [[nodiscard]] static ConvolutionChoices parse(const std::string& text);
  friend bool operator==(const ConvolutionChoices&, const ConvolutionChoices&) = default;

 private:
  std::map<WinogradShape, std::array<bool, convolution_steps.size()>> choices_;
};

}  // namespace lockstep
