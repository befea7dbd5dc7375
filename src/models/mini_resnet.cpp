#include "models_detail.hpp"

#include <fmt/format.h>

namespace lockstep::models_detail {

Graph mini_resnet(const ModelOptions& options) {
  constexpr int stages = 3;
  constexpr int blocks = 2;
  const std::int64_t base = options.width == 0 ? 64 : options.width;
  Graph graph("mini-resnet", options.image, options.classes);
  ValueId x = stem(graph, options, false);
  std::int64_t channels = base;
  for (int stage = 0; stage < stages; ++stage) {
    const std::int64_t width = base << stage;
    for (int block = 0; block < blocks; ++block) {
      x = basic_block(graph, x,
                      {.name = fmt::format("layer{}.{}", stage + 1, block),
                       .in_channels = channels,
                       .width = width,
                       .stride = stage > 0 && block == 0 ? 2 : 1,
                       .zero_init_residual = options.zero_init_residual,
                       .shortcut = options.shortcut,
                       .drop = drop_of(options, stage * blocks + block, stages * blocks)});
      channels = width;
    }
  }
  classifier(graph, x, options);
  return graph;
}

}  // namespace lockstep::models_detail
