#pragma once

#include "lockstep/core/dropped_blocks.hpp"
#include "lockstep/core/encoded_images.hpp"
#include "lockstep/core/host_memory.hpp"
#include "lockstep/core/pixel_cut.hpp"
#include "lockstep/core/targets.hpp"

#include <cstdint>

namespace lockstep {

/// Memory layout of a batch of images for an engine, and its content: the network's input values,
/// or stored pixels that the engine crops, mirrors, resamples and normalises itself.
enum class ImageLayout { nchw, nhwc };
enum class ImageContent { values, pixels };
struct InputFormat {
  ImageLayout layout = ImageLayout::nchw;
  ImageContent content = ImageContent::values;
  HostMemory* memory = nullptr;        ///< memory for pixels and targets; null: any memory
  DeviceDecoding* decoding = nullptr;  ///< of JPEG files to RGB pixels; null: the loader decodes
};

/// A batch of stored pixels, in memory of InputFormat::memory.
struct PixelImages {
  const std::uint8_t* data =
      nullptr;  ///< image i, (height, width, C), begins at i * height * width * C
  std::int32_t height = 0;
  std::int32_t width = 0;
  const PixelCut* cuts = nullptr;    ///< (N,)
  const float* values = nullptr;     ///< (C, 256): network value of each pixel value
  const PixelBox* erased = nullptr;  ///< (N,), pixels of the network's image that are 0; null: none
  EncodedImages encoded = {};        ///< images that the engine decodes
};

/// One micro-batch in host memory, in the engine's input format: fp32 values (N, ...; of images
/// N, C, H, W in that layout), or pixels if the engine takes pixels, and targets. Aligned to 64
/// bytes. Must stay alive until the program's metrics() are available, or Engine::await_copy() has
/// returned.
struct Batch {
  const float* values = nullptr;
  Targets targets = {};
  std::int64_t size = 0;
  PixelImages pixels = {};
  DroppedBlocks dropped = {};
};

}  // namespace lockstep
