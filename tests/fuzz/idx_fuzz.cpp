#include "lockstep/data/idx.hpp"

#include "fuzz.hpp"

namespace lockstep::fuzz {

void run(Bytes bytes) {
  accepts([&] { use(parse_idx(std::as_bytes(bytes), "input").values); });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
