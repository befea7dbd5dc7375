#include "lockstep/data/cifar.hpp"

#include "fuzz.hpp"

#include <algorithm>
#include <vector>

namespace lockstep::fuzz {

/// The first two bytes select the kind and the number of whole records to which the rest is
/// extended; libFuzzer alone would seldom find a length of 3073 bytes.
void run(Bytes bytes) {
  if (bytes.size() < 2) return;
  const CifarLayout layout = (bytes[0] & 1) != 0 ? CifarLayout{.label_bytes = 2, .classes = 100}
                                                 : CifarLayout{.label_bytes = 1, .classes = 10};
  const std::size_t records = bytes[1] % 4;
  const Bytes rest = bytes.subspan(2);
  std::vector<std::uint8_t> file(rest.begin(), rest.end());
  if (records > 0) file.resize(records * (static_cast<std::size_t>(layout.label_bytes) + 3072));
  accepts([&] { use(parse_cifar(std::as_bytes(std::span(file)), layout, "input").images); });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
