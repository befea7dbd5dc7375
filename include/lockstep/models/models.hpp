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
  std::int64_t width = 0;  ///< --width: stem width of mini-resnet, hidden width of mlp; 0: the model's own
  bool zero_init_residual = false;
  double label_smoothing = 0.0;
};

/// The graph of a model by its name; Error(usage) naming the known ones for another name, or
/// where the image is too small for it.
[[nodiscard]] Graph make_model(std::string_view name, const ModelOptions& options);

/// The names make_model knows, in the order `--help` shows them.
[[nodiscard]] std::span<const std::string_view> model_names();

}  // namespace lockstep
