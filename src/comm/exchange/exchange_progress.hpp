#pragma once

#include "exchange.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace lockstep {

/// The exchanges of all communicators of a thread. Any wait progresses all of them, since another
/// rank may be waiting for a different one first.
class ExchangeProgress final {
 public:
  static void join(Exchange& exchange) { exchanges().push_back(&exchange); }
  static void leave(Exchange& exchange) noexcept { std::erase(exchanges(), &exchange); }

  [[nodiscard]] static bool is_idle() noexcept {
    return std::ranges::all_of(exchanges(), &Exchange::is_idle);
  }
  static void advance() {
    for (Exchange* exchange : exchanges()) {
      if (exchange->advance()) ++moves();
    }
  }

  /// Blocks until `is_done()`. While nothing happens, spins first, then yields the core to other
  /// threads, then naps: a thread that only yields may keep a core from processes of other sessions
  /// and control groups for minutes. Also progresses MPI, since earlier MPI sends may still be
  /// pending.
  template <typename Done>
  static void wait_until(Done&& is_done) {
    constexpr std::uint64_t spins = 256;
    constexpr std::uint64_t yields = 4096;  // some ms
    constexpr std::chrono::microseconds nap{50};
    std::uint64_t idle = 0;
    for (std::uint64_t seen = moves(); !is_done(); seen = moves()) {
      advance();
      idle = moves() == seen ? idle + 1 : 0;
      const bool naps = idle > spins + yields;
      if (naps || idle % 64 == 0) {
        int there = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
      }
      if (naps) {
        std::this_thread::sleep_for(nap);
      } else if (idle > spins) {
        std::this_thread::yield();
      } else {
        spin();
      }
    }
  }

 private:
  /// Calls of Exchange::advance() in this thread that had something to do.
  [[nodiscard]] static std::uint64_t& moves() noexcept {
    thread_local std::uint64_t of_thread = 0;
    return of_thread;
  }
  /// Frees execution units for the core's other hardware threads for some cycles.
  static void spin() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
  }
  [[nodiscard]] static std::vector<Exchange*>& exchanges() noexcept {
    thread_local std::vector<Exchange*> of_thread;
    return of_thread;
  }
};

}  // namespace lockstep
