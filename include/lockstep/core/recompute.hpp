#pragma once

namespace lockstep {

/// What backward computes again instead of keeping it from forward. `automatic`: norms on CPUs,
/// none on GPUs; `norms`: outputs of batch norms, additions and GELUs; `block`: all that only a
/// block of the network reads.
enum class Recompute { automatic, none, norms, block };
[[nodiscard]] constexpr Recompute of_cpus(Recompute choice) noexcept {
  return choice == Recompute::automatic ? Recompute::norms : choice;
}

}  // namespace lockstep
