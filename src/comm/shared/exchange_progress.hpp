#pragma once

#include "piece_exchange.hpp"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep {

/// The exchanges of all communicators of a thread. Any wait progresses all of them, since another
/// rank may be waiting for a different one first.
class ExchangeProgress final {
 public:
  static void join(PieceExchange& exchange) { exchanges().push_back(&exchange); }
  static void leave(PieceExchange& exchange) noexcept { std::erase(exchanges(), &exchange); }

  [[nodiscard]] static bool is_idle() noexcept {
    return std::ranges::all_of(exchanges(), &PieceExchange::is_idle);
  }
  static void advance() {
    for (PieceExchange* exchange : exchanges()) exchange->advance();
  }

  /// Blocks until `is_done()`. Spins first, then yields the core to other threads. Also progresses
  /// MPI, since earlier MPI sends may still be pending.
  template <typename Done>
  static void wait_until(Done&& is_done) {
    for (std::uint64_t turn = 1; !is_done(); ++turn) {
      advance();
      if (turn % 64 == 0) {
        int there = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
      }
      if (turn > 256) {
        ::sched_yield();
      } else {
        spin();
      }
    }
  }

 private:
  /// Frees execution units for the core's other hardware threads for some cycles.
  static void spin() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
  }
  [[nodiscard]] static std::vector<PieceExchange*>& exchanges() noexcept {
    thread_local std::vector<PieceExchange*> of_thread;
    return of_thread;
  }
};

}  // namespace lockstep
