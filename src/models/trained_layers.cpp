#include "lockstep/models/trained_layers.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

void require_trained_layers(const Graph& graph, ModelOptions options,
                            const std::optional<ImageShape>& trained,
                            const std::function<Graph(const ModelOptions&)>& make,
                            const std::string& file) {
  const ImageShape image = image_shape(graph.input_shape());
  if (!trained || trained->channels != image.channels) return;
  const std::string note = stem_note(graph.name(), options);
  options.image = *trained;
  const std::string difference = layer_difference(make(options), graph, true);
  if (difference.empty()) return;
  const std::string trained_note = stem_note(graph.name(), options);
  const bool has_other_stem = options.stem == Stem::standard && note != trained_note;
  fail(ExitStatus::usage,
       "{} on images of {}x{} is not the network of {}, trained on images of {}x{} ({}); give "
       "another --image-size{}{}",
       graph.name(), image.height, image.width, file, trained->height, trained->width, difference,
       has_other_stem ? ", or --model and --stem " : "",
       !has_other_stem        ? ""
       : trained_note.empty() ? "7x7"
                              : "3x3");
}

}  // namespace lockstep
