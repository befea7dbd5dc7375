#include "lockstep/data/decode.hpp"

#include "fuzz.hpp"

namespace lockstep::fuzz {

void run(Bytes bytes) {
  Image image;
  accepts([&] {
    decode_png(std::as_bytes(bytes), image);
    use(image.pixels);
  });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
