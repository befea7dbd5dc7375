#pragma once

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::test {

/// The seeds of LOCKSTEP_TEST_SEEDS, a number or FIRST-LAST; a few if it is not set. From 1.
inline std::vector<std::uint64_t> seeds() {
  const char* const text = std::getenv("LOCKSTEP_TEST_SEEDS");
  std::istringstream words(text == nullptr ? "1-8" : text);
  std::uint64_t first = 1;
  std::uint64_t last = 0;
  char dash = 0;
  words >> first;
  if (!(words >> dash >> last)) last = first;
  std::vector<std::uint64_t> all(last - first + 1);
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// The first of them, for tests that run without variation in the gate: then 0.
inline std::uint64_t soak_seed() {
  return std::getenv("LOCKSTEP_TEST_SEEDS") == nullptr ? 0 : seeds().front();
}

}  // namespace lockstep::test
