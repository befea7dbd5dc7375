#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// One of Philox's ten rounds on the words of a counter.
constexpr void philox_round(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2,
                            std::uint32_t& c3, const std::array<std::uint32_t, 2>& key) noexcept {
  const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0;
  const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2;
  c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ key[0];
  c1 = static_cast<std::uint32_t>(product1);
  c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ key[1];
  c3 = static_cast<std::uint32_t>(product0);
}
/// The key of the next round.
constexpr void advance_philox_key(std::array<std::uint32_t, 2>& key) noexcept {
  key[0] += 0x9E3779B9u;
  key[1] += 0xBB67AE85u;
}
inline constexpr int philox_rounds = 10;

/// Philox4x32-10, a counter-based generator: a pure function of (counter, key).
/// Source: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < philox_rounds; ++round) {
    philox_round(counter[0], counter[1], counter[2], counter[3], key);
    advance_philox_key(key);
  }
  return counter;
}

/// Purpose of a random stream. Streams of one seed with different purposes are independent.
enum class RandomPurpose : std::uint32_t {
  initialization = 1,
  sample_order = 2,
  augmentation = 3,
  pack_order = 4,
  synthetic_data = 5,
  mixing = 6,
  erasing = 7,
  auto_augment = 8,
  stochastic_depth = 9,
};

/// A sequential random stream with key (seed, purpose) and counter (a, b), for example sample and
/// epoch. Streams with different keys or counters are independent.
class PhiloxStream final {
 public:
  PhiloxStream(std::uint64_t seed, RandomPurpose purpose, std::uint64_t a, std::uint32_t b) noexcept
      : key_{static_cast<std::uint32_t>(seed) ^ (static_cast<std::uint32_t>(purpose) * 0x9E3779B9u),
             static_cast<std::uint32_t>(seed >> 32)},
        counter_{0, static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32), b} {}

  [[nodiscard]] std::uint32_t next_u32() noexcept {
    if (used_ == 4) {
      block_ = philox4x32(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }
  [[nodiscard]] std::uint64_t next_u64() noexcept {
    const std::uint64_t high = next_u32();
    return (high << 32) | next_u32();
  }
  /// Uniform in [0, 1), 24 bits.
  [[nodiscard]] float next_float() noexcept {
    return static_cast<float>(next_u32() >> 8) * 0x1.0p-24F;
  }
  /// Uniform in [0, 1), 53 bits.
  [[nodiscard]] double next_double() noexcept {
    return static_cast<double>(next_u64() >> 11) * 0x1.0p-53;
  }
  /// Uniform in [0, bound), bound >= 1 (multiply-shift; bias below bound / 2^32).
  [[nodiscard]] std::uint32_t next_below(std::uint32_t bound) noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{next_u32()} * bound) >> 32);
  }
  /// The bytes of the next numbers, least significant first; the rest of the last one is dropped.
  void fill(std::span<std::byte> bytes) noexcept;
  /// Moves to just after the first 4 * `blocks` numbers of next_u32().
  void seek(std::uint32_t blocks) noexcept {
    counter_[0] = blocks;
    used_ = 4;
  }
  /// Standard normal by the Box-Muller transform; consumes four numbers.
  [[nodiscard]] double next_normal() noexcept;

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  unsigned used_ = 4;
};

}  // namespace lockstep
