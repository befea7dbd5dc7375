#include "lockstep/data/decode.hpp"

#include "fuzz.hpp"

namespace lockstep::fuzz {

void run(Bytes bytes) {
  Image image;
  for (const std::int64_t channels : {1, 3}) {
    accepts([&] {
      decode_jpeg(std::as_bytes(bytes), channels, image);
      use(image.pixels);
    });
    accepts([&] {
      static JpegDecoder decoder;
      const ImageShape shape = decoder.open(std::as_bytes(bytes), channels);
      decoder.decode({.top = shape.height / 3,
                      .left = shape.width / 3,
                      .height = (shape.height + 2) / 3,
                      .width = (shape.width + 2) / 3},
                     image);
      use(image.pixels);
    });
  }
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
