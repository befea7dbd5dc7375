#pragma once

#include "lockstep/core/image_shape.hpp"
#include "lockstep/core/loss_options.hpp"
#include "lockstep/core/resnet_kinds.hpp"
#include "lockstep/graph/graph.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Options of every model.
struct ModelOptions {
  ImageShape image{.channels = 3, .height = 224, .width = 224};
  std::int64_t classes = 1000;
  /// --width: channels of a resnet's stem (each stage doubles them) or of simple-cnn's first
  /// convolution, or mlp's hidden width; 0: the model's default.
  std::int64_t width = 0;
  bool zero_init_residual = false;
  Stem stem = Stem::standard;
  Shortcut shortcut = Shortcut::convolution;
  /// Probability with which stochastic depth drops the last residual block of a sample; it grows
  /// linearly from 0 for the first block, as in timm.
  double stochastic_depth = 0.0;
  double label_smoothing = 0.0;
  std::string loss{loss_options.front().name};  ///< a name in `loss_options`
  double bce_target_threshold = 0.0;            ///< 0: none
};

/// Ends a graph with the loss of the options.
void add_loss(Graph& graph, ValueId logits, const ModelOptions& options);

/// Returns the network for the options' image shape and number of classes.
using ModelFunction = std::function<Graph(const ModelOptions&)>;

/// A model that a program adds. Its graphs must have the same name: checkpoints store it, and other
/// commands find the model by it.
struct OwnModel {
  std::string name;  ///< of letters, digits, periods, hyphens and underscores
  ModelFunction make;
};
/// Adds a model: --model takes its name. Error(usage) if the name is taken or has other characters,
/// or if there is no function.
void add_model(OwnModel model);
/// Whether it is one of Lockstep's own models.
[[nodiscard]] bool is_built_in(std::string_view name);

/// The graph of the model `name`, with torchvision's parameter names, and timm's for a deep stem
/// and avgpool shortcuts. Images under 64 pixels get a 3x3 stem without pooling, or a deep one
/// without pooling and stride, unless options.stem says which. Error(usage) if the name is unknown
/// (with the nearest and all known names) or the image is too small for the model.
[[nodiscard]] Graph make_model(std::string_view name, const ModelOptions& options);

/// What make_model() chose because images are under 64 pixels; else empty.
[[nodiscard]] std::string stem_note(std::string_view name, const ModelOptions& options);

/// The names that make_model() accepts, in the order of `--help`; a program's own come last.
[[nodiscard]] std::vector<std::string_view> model_names();

}  // namespace lockstep
