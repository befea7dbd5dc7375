#include "lockstep/data/decode.hpp"

#include "fuzz.hpp"

namespace lockstep::fuzz {

void run(Bytes bytes) {
  Image image;
  for (const std::int64_t channels : {1, 3}) {
    accepts([&] {
      decode_png(std::as_bytes(bytes), channels, image);
      use(image.pixels);
    });
  }
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
