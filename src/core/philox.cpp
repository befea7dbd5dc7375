#include "lockstep/core/philox.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fill() writes words as memory holds them");

/// Blocks computed together, in vectors.
constexpr std::uint32_t lanes = 16;
using Lanes = std::array<std::uint32_t, lanes>;

/// philox4x32() of `counter` and the next counters, in this order.
void philox_blocks(const std::array<std::uint32_t, 4>& counter, std::array<std::uint32_t, 2> key,
                   std::uint32_t* to) noexcept {
  std::array<Lanes, 4> c;
  for (std::size_t word = 0; word < 4; ++word) c[word].fill(counter[word]);
  for (std::uint32_t lane = 0; lane < lanes; ++lane) c[0][lane] += lane;
  for (int round = 0; round < philox_rounds; ++round) {
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      philox_round(c[0][lane], c[1][lane], c[2][lane], c[3][lane], key);
    }
    advance_philox_key(key);
  }
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    for (std::size_t word = 0; word < 4; ++word) to[4 * lane + word] = c[word][lane];
  }
}

}  // namespace

double PhiloxStream::next_normal() noexcept {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - next_double()));
  return radius * std::cos(2.0 * std::numbers::pi * next_double());
}

void PhiloxStream::fill(std::span<std::byte> bytes) noexcept {
  const auto put_next = [&] {
    const std::uint32_t number = next_u32();
    const std::size_t size = std::min(bytes.size(), sizeof(number));
    std::memcpy(bytes.data(), &number, size);
    bytes = bytes.subspan(size);
  };
  while (used_ != block_.size() && !bytes.empty()) put_next();
  std::array<std::uint32_t, 4 * std::size_t{lanes}> numbers;
  while (bytes.size() >= sizeof(numbers)) {
    philox_blocks(counter_, key_, numbers.data());
    counter_[0] += lanes;
    std::memcpy(bytes.data(), numbers.data(), sizeof(numbers));
    bytes = bytes.subspan(sizeof(numbers));
  }
  while (!bytes.empty()) put_next();
}

}  // namespace lockstep
