#include "lockstep/core/image_shape.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

ImageShape image_shape(const Shape& input) {
  if (input.rank() == 3) return {.channels = input[0], .height = input[1], .width = input[2]};
  fail(ExitStatus::usage,
       "an input of {} cannot be read from images (an image has three axes: CxHxW)",
       to_string(input));
}

}  // namespace lockstep
