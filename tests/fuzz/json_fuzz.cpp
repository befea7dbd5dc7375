#include "lockstep/core/json.hpp"

#include "fuzz.hpp"

#include <algorithm>
#include <string_view>

namespace lockstep::fuzz {

/// An upper bound of the depth.
std::size_t brackets(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return c == '[' || c == '{'; }));
}

/// What is read prints as a text that reads as the same value, and is what another parser reads.
void run(Bytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto json = parse_json(text);
  // The other parser reads a byte order mark, ends at a zero byte, and has no limits.
  const bool differs = text.starts_with("\xef\xbb\xbf") || text.find('\0') != text.npos;
  if (differs || brackets(text) > JsonLimits{}.depth) return;
  const Json other = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.has_value() == other.is_discarded()) __builtin_trap();
  if (json && (*json != other || parse_json(json->dump()) != json)) __builtin_trap();
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
