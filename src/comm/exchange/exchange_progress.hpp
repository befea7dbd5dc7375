#pragma once

#include "exchange.hpp"
#include "lockstep/comm/mpi_lock.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace lockstep {

/// The exchanges of all communicators of this process. Any wait progresses all of them, since
/// another rank may be waiting for a different one first. Between waits, a thread progresses them
/// if a communicator asked for one, else only calls of try_advance() do.
class ExchangeProgress final {
 public:
  static ExchangeProgress& of_process();

  /// `prepare_thread`: called first on the thread, which it asks for; empty: does not ask for one.
  void join(Exchange& exchange, const std::function<void()>& prepare_thread);
  /// Afterwards nothing touches the exchange. The last one to leave ends the thread.
  void leave(Exchange& exchange) noexcept;

  /// Throws what the thread failed with.
  void add(Exchange& exchange, const ExchangeOperation& operation);
  [[nodiscard]] bool is_idle();
  /// Progresses all exchanges, unless the thread is doing so. Returns the lock that keeps it from
  /// them, if it was free. Throws what the thread failed with.
  [[nodiscard]] std::unique_lock<std::mutex> try_advance();

  /// Blocks until `is_done()`, which must not advance exchanges; meanwhile the thread does not
  /// either. While nothing happens, spins first, then yields the core to other threads, then naps:
  /// a thread that only yields may keep a core from processes of other sessions and control groups
  /// for minutes. Also progresses MPI, since earlier MPI sends may still be pending.
  template <typename Done>
  void wait_until(Done&& is_done) {
    const Waiting waiting(*this);
    Pause pause;
    while (!is_done()) pause.after(advance_once(pause.probes()));
  }

 private:
  /// Keeps the thread from advancing, as the waiting thread does.
  class Waiting final {
   public:
    explicit Waiting(ExchangeProgress& progress);
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting();

   private:
    ExchangeProgress& progress_;
  };
  /// Spins, yields or naps depending on how long nothing has happened.
  class Pause final {
   public:
    [[nodiscard]] bool probes() const noexcept { return naps() || idle_ % 64 == 0; }
    void after(bool moved);

   private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::uint64_t spins = 256;
    static constexpr std::chrono::milliseconds yielding{2};
    [[nodiscard]] bool naps() const noexcept { return idle_ > spins && Clock::now() >= naps_from_; }
    std::uint64_t idle_ = 0;
    Clock::time_point naps_from_;
  };

  ExchangeProgress() = default;
  /// With the lock held.
  bool advance();
  [[nodiscard]] bool all_idle() const noexcept;
  void rethrow_failure() const;
  bool advance_once(bool progress_mpi);
  void run(const std::stop_token& stop);

  std::vector<Exchange*> exchanges_;
  std::exception_ptr failure_;  ///< of the thread
  int waiting_ = 0;
  std::condition_variable_any work_;
  std::jthread thread_;
};

}  // namespace lockstep
