#pragma once

#include "lockstep/graph/graph.hpp"

#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// What every model is made from.
struct ModelOptions {
  ImageShape image{.channels = 3, .height = 224, .width = 224};
  std::int64_t classes = 1000;
  /// --width: channels of a resnet's stem, which its stages double, and of simple-cnn's first
  /// convolution; hidden width of mlp; 0: the model's own.
  std::int64_t width = 0;
  bool zero_init_residual = false;
  double label_smoothing = 0.0;
};

/// The graph of a model by its name, with torchvision's parameter names. Images under 64 pixels get
/// a 3x3 stem without pooling. Error(usage) for another name, naming the nearest and all known
/// ones, or where the image is too small for the model.
[[nodiscard]] Graph make_model(std::string_view name, const ModelOptions& options);

/// The names make_model knows, in the order `--help` shows them.
[[nodiscard]] std::span<const std::string_view> model_names();

}  // namespace lockstep
