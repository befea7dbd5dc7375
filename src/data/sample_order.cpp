#include "lockstep/data/sample_order.hpp"

#include "lockstep/core/philox.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>

namespace lockstep {
namespace {

constexpr std::size_t rounds = 8;
/// Below 6 bits, eight rounds leave a bias of a few percent, since narrow halves mix too slowly.
constexpr unsigned least_bits = 6;
using RoundKeys = std::array<std::uint32_t, rounds>;

RoundKeys round_keys(std::uint64_t seed, std::int64_t epoch) noexcept {
  PhiloxStream stream(seed, RandomPurpose::sample_order, static_cast<std::uint64_t>(epoch), 0);
  RoundKeys keys{};
  for (std::uint32_t& key : keys) key = stream.next_u32();
  return keys;
}

/// The finalizer of MurmurHash3 (A. Appleby, public domain): every input bit affects every output
/// bit. Philox makes only the keys: its ten rounds in each Feistel round would cost ten times more.
std::uint64_t mix(std::uint64_t value) noexcept {
  value ^= value >> 33;
  value *= 0xFF51AFD7ED558CCDu;
  value ^= value >> 33;
  value *= 0xC4CEB9FE1A85EC53u;
  return value ^ (value >> 33);
}

/// A Feistel network over the smallest power of two that holds `size` values (at least 64), with
/// cycle walking for results at or above `size`: fewer than two walks on average if size > 32.
class Bijection final {
 public:
  Bijection(std::uint64_t size, const RoundKeys& keys) noexcept : size_(size), keys_(keys) {
    const unsigned bits = std::max(least_bits, static_cast<unsigned>(std::bit_width(size - 1)));
    low_bits_ = bits / 2;  // the high half has the odd bit
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
  }

  [[nodiscard]] std::uint64_t forward(std::uint64_t value) const noexcept {
    do {
      std::uint64_t low = value & low_mask_;
      std::uint64_t high = value >> low_bits_;
      for (std::size_t round = 0; round < rounds; round += 2) {
        high ^= mask(round, low) & high_mask_;
        low ^= mask(round + 1, high) & low_mask_;
      }
      value = (high << low_bits_) | low;
    } while (value >= size_);
    return value;
  }

  [[nodiscard]] std::uint64_t backward(std::uint64_t value) const noexcept {
    do {
      std::uint64_t low = value & low_mask_;
      std::uint64_t high = value >> low_bits_;
      for (std::size_t round = rounds; round > 0; round -= 2) {
        low ^= mask(round - 1, high) & low_mask_;
        high ^= mask(round - 2, low) & high_mask_;
      }
      value = (high << low_bits_) | low;
    } while (value >= size_);
    return value;
  }

 private:
  [[nodiscard]] std::uint64_t mask(std::size_t round, std::uint64_t half) const noexcept {
    return mix((std::uint64_t{keys_[round]} << 32) ^ half);
  }

  std::uint64_t size_;
  RoundKeys keys_;
  unsigned low_bits_ = 0;
  std::uint64_t low_mask_ = 0;
  std::uint64_t high_mask_ = 0;
};

}  // namespace

SampleOrder::SampleOrder(std::int64_t samples, std::uint64_t seed, std::int64_t block) noexcept
    : samples_(samples), seed_(seed), block_(block) {
  assert(samples >= 1 && block >= 1);
  // A block longer than the data set gives the identity order, as this does without overflow.
  if (block_ > samples_) block_ = samples_;
}

std::int64_t SampleOrder::at(std::int64_t epoch, std::int64_t position) const noexcept {
  assert(position >= 0 && position < samples_);
  const std::int64_t blocks = (samples_ - 1) / block_ + 1;
  const Bijection bijection(static_cast<std::uint64_t>(blocks), round_keys(seed_, epoch));
  const auto sample_block = [&](std::int64_t slot) {
    return static_cast<std::int64_t>(bijection.forward(static_cast<std::uint64_t>(slot)));
  };
  if (block_ == 1) return sample_block(position);
  // The last block may be short; slots after it then begin earlier.
  const auto short_slot =
      static_cast<std::int64_t>(bijection.backward(static_cast<std::uint64_t>(blocks - 1)));
  const std::int64_t short_begin = short_slot * block_;
  const std::int64_t short_size = samples_ - (blocks - 1) * block_;
  if (position < short_begin) return sample_block(position / block_) * block_ + position % block_;
  if (position - short_begin < short_size) {
    return (blocks - 1) * block_ + (position - short_begin);
  }
  const std::int64_t rest = position - short_size;
  return sample_block(rest / block_ + 1) * block_ + rest % block_;
}

std::int64_t spread_copies(std::int64_t i, std::int64_t size, std::int64_t repeats) noexcept {
  // Positions of copy c are c, c + repeats and so on; the first `longer` copies have one more.
  const std::int64_t samples = size / repeats;
  const std::int64_t longer = size % repeats;
  const std::int64_t of_longer = longer * (samples + 1);
  if (i < of_longer) return i % (samples + 1) * repeats + i / (samples + 1);
  const std::int64_t rest = i - of_longer;
  return rest % samples * repeats + longer + rest / samples;
}

}  // namespace lockstep
