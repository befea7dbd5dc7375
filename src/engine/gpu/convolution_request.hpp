#pragma once

#include "data_type.hpp"
#include "kernels/column_gather.hpp"
#include "lockstep/core/precision.hpp"
#include "lockstep/graph/graph.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::gpu {

/// A convolution over (N, H, W, C) values; channels as stored. Weights are (out_channels, kernel,
/// kernel_columns(), channels_per_group()), without gaps.
struct ConvolutionShape {
  std::int64_t batch = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t in_channels = 0;
  std::int64_t out_channels = 0;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;
  DataType type = DataType::f32;
  bool tf32 = false;              ///< fp32 operands may be rounded to tf32
  std::int64_t kernel_width = 0;  ///< 0: a square kernel

  [[nodiscard]] std::int64_t kernel_columns() const noexcept {
    return kernel_width == 0 ? kernel : kernel_width;
  }
  [[nodiscard]] std::int64_t out_height() const noexcept {
    return (height + 2 * padding - kernel) / stride + 1;
  }
  [[nodiscard]] std::int64_t out_width() const noexcept {
    return (width + 2 * padding - kernel_columns()) / stride + 1;
  }
  /// Input channels of one output channel.
  [[nodiscard]] std::int64_t channels_per_group() const noexcept { return in_channels / groups; }
  friend bool operator==(const ConvolutionShape&, const ConvolutionShape&) = default;
};

/// Whether the last value before the loss, which alone the loss reads, is a linear layer's. Its
/// outputs, the logits, are fp32 in every precision, since the loss subtracts them.
[[nodiscard]] bool ends_in_linear(const Graph& graph);
/// The forward pass of that layer with 16-bit operands, widened to fp32: cuDNN has no convolution
/// from 16 bits to fp32. tf32 has the digits of both 16-bit types, so the products are theirs.
[[nodiscard]] ConvolutionShape widened(ConvolutionShape shape);

/// How the columns of images are gathered for a first convolution of stride 2 with at most four
/// channels, which would multiply mostly padding. Nullopt for others.
[[nodiscard]] std::optional<ColumnGather> column_gather(const ConvolutionShape& shape);

/// The convolution that computes `shape`, whose channels are the network's: over gathered columns,
/// or over values with padded channels. Error(usage) with the layer's name if there are several
/// groups and their channels would need padding.
[[nodiscard]] ConvolutionShape stored_shape(ConvolutionShape shape,
                                            const std::optional<ColumnGather>& gather,
                                            const std::string& layer);

enum class ConvolutionPass { forward, backward_data, backward_weights };

/// One pass of a convolution.
struct ConvolutionRequest {
  ConvolutionShape shape;
  ConvolutionPass pass = ConvolutionPass::forward;

  /// "bf16 data gradient of 256x56x56x64 to 64, kernel 3, stride 1, padding 1", and ", 32
  /// groups" if there are several; unique for each request.
  [[nodiscard]] std::string text() const;
  /// Multiplications and additions.
  [[nodiscard]] double operations() const noexcept;
  friend bool operator==(const ConvolutionRequest&, const ConvolutionRequest&) = default;
};

/// All distinct requests of a network's training at that batch size.
[[nodiscard]] std::vector<ConvolutionRequest> requests_of(const Graph& graph, Precision precision,
                                                          std::int64_t batch_size);

/// Names of algorithms, by ConvolutionRequest::text().
using AlgorithmChoices = std::map<std::string, std::string>;
/// One line each, "library, tab, request, tab, algorithm", for other ranks and later runs.
[[nodiscard]] std::string to_text(const AlgorithmChoices& choices, const std::string& library);
/// The choices of that library; other lines are ignored.
[[nodiscard]] AlgorithmChoices parse_algorithms(const std::string& text,
                                                const std::string& library);

}  // namespace lockstep::gpu
