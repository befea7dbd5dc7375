#pragma once

#include <cstdint>
#include <random>

namespace lockstep::test {

/// What NCCL leaves open, drawn at random; always the same without a seed.
class StandInVariation final {
 public:
  StandInVariation() = default;
  /// Differs between ranks.
  StandInVariation(std::uint64_t seed, int rank)
      : varies_(true), random_(1000 * seed + static_cast<std::uint64_t>(rank)) {}

  [[nodiscard]] bool varies() const noexcept { return varies_; }
  /// How many queries a call needs to settle; `usual`: without a seed, or more than ever drawn.
  [[nodiscard]] int polls(int usual) {
    constexpr int most = 40;
    if (!varies_ || usual > most) return usual;
    return one_of(3) ? 0 : one_of(2) ? 1 : number(most);
  }
  /// Whether a call returns success before it has settled.
  [[nodiscard]] bool succeeds_early(bool usual) { return varies_ ? one_of(2) : usual; }
  /// Whether this rank gets no window.
  [[nodiscard]] bool refuses_window(bool usual) { return usual || (varies_ && one_of(3)); }
  /// Whether a split communicator is handed over before it is ready.
  [[nodiscard]] bool hands_over_early() { return varies_ && one_of(2); }
  /// Attempts until a collective begins on the device.
  [[nodiscard]] int delay() { return number(6); }

 private:
  [[nodiscard]] int number(int most) {
    return std::uniform_int_distribution<int>(0, most)(random_);
  }
  [[nodiscard]] bool one_of(int count) { return number(count - 1) == 0; }

  bool varies_ = false;
  std::mt19937_64 random_;
};

}  // namespace lockstep::test
