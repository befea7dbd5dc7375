#pragma once

#include "program_builder.hpp"

namespace lockstep::gpu {

/// Of a pool with these options: kernel, stride and padding.
template <typename Options>
[[nodiscard]] PoolExtent pool_extent(const ProgramBuilder& builder, ValueId input, ValueId output,
                                     const Options& options) {
  const Extent in = builder.extent(input);
  const Extent out = builder.extent(output);
  return {.batch = in.batch,
          .height = in.height,
          .width = in.width,
          .out_height = out.height,
          .out_width = out.width,
          .padded = in.padded,
          .kernel = options.kernel,
          .stride = options.stride,
          .padding = options.padding,
          .gpu = in.gpu};
}

}  // namespace lockstep::gpu
