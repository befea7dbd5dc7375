#pragma once

#include "lockstep/models/models.hpp"

#include <string>
#include <string_view>

namespace lockstep::models_detail {

[[nodiscard]] Graph mini_resnet(const ModelOptions& options);
[[nodiscard]] Graph resnet(std::string_view name, const ModelOptions& options);
[[nodiscard]] Graph simple_cnn(const ModelOptions& options);
[[nodiscard]] Graph mlp(const ModelOptions& options);

/// Options of one residual block.
struct BlockOptions {
  std::string name;
  std::int64_t in_channels;
  std::int64_t width;  ///< channels of the output; of a bottleneck's, a quarter
  std::int64_t stride;
  bool zero_init_residual;
  Shortcut shortcut;
  StochasticDepth drop;
};
/// Stochastic depth of block `block` of `blocks`.
[[nodiscard]] StochasticDepth drop_of(const ModelOptions& options, int block, int blocks);
/// Convolutions, norm and relu, with channels from options.width, or 64; then, if the stem is
/// full, pooling. The first convolution of a full stem has a stride. `usually_full`: whether it is
/// full unless options.stem says 7x7 or 3x3.
[[nodiscard]] ValueId stem(Graph& graph, const ModelOptions& options, bool usually_full);
/// Two 3x3 convolutions and a shortcut; ends with relu.
[[nodiscard]] ValueId basic_block(Graph& graph, ValueId input, const BlockOptions& options);
/// Appends pooling, flatten, `fc` and the loss.
void classifier(Graph& graph, ValueId input, const ModelOptions& options);

}  // namespace lockstep::models_detail
