#include "exchange_progress.hpp"

#include <mpi.h>

#include <algorithm>

namespace lockstep {
namespace {

/// Frees execution units for the core's other hardware threads for some cycles.
void spin() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

}  // namespace

std::mutex& mpi_mutex() noexcept {
  static std::mutex mutex;
  return mutex;
}

ExchangeProgress& ExchangeProgress::of_process() {
  static ExchangeProgress progress;
  return progress;
}

void ExchangeProgress::join(Exchange& exchange, const std::function<void()>& prepare_thread) {
  const std::lock_guard lock(mpi_mutex());
  exchanges_.push_back(&exchange);
  if (!prepare_thread || thread_.joinable()) return;
  thread_ = std::jthread([this, prepare_thread](const std::stop_token& stop) {
    prepare_thread();
    run(stop);
  });
}

void ExchangeProgress::leave(Exchange& exchange) noexcept {
  std::jthread ended;
  {
    const std::lock_guard lock(mpi_mutex());
    std::erase(exchanges_, &exchange);
    if (!exchanges_.empty()) return;
    ended = std::move(thread_);
    failure_ = nullptr;
  }
}

void ExchangeProgress::add(Exchange& exchange, const ExchangeOperation& operation) {
  {
    const std::lock_guard lock(mpi_mutex());
    rethrow_failure();
    exchange.add(operation);
  }
  work_.notify_one();
}

bool ExchangeProgress::is_idle() {
  const std::lock_guard lock(mpi_mutex());
  return all_idle();
}

std::unique_lock<std::mutex> ExchangeProgress::try_advance() {
  std::unique_lock lock(mpi_mutex(), std::try_to_lock);
  if (!lock) return lock;
  rethrow_failure();
  advance();
  return lock;
}

bool ExchangeProgress::advance() {
  bool moved = false;
  for (Exchange* exchange : exchanges_) moved |= exchange->advance();
  return moved;
}

bool ExchangeProgress::all_idle() const noexcept {
  return std::ranges::all_of(exchanges_, &Exchange::is_idle);
}

void ExchangeProgress::rethrow_failure() const {
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

bool ExchangeProgress::advance_once(bool progress_mpi) {
  const std::lock_guard lock(mpi_mutex());
  rethrow_failure();
  const bool moved = advance();
  if (progress_mpi) {
    int there = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
  }
  return moved;
}

void ExchangeProgress::run(const std::stop_token& stop) {
  constexpr std::chrono::microseconds shortest_nap{200};
  constexpr std::chrono::microseconds longest_nap{1000};
  auto nap = shortest_nap;
  std::unique_lock lock(mpi_mutex());
  const auto has_work = [this] { return waiting_ == 0 && failure_ == nullptr && !all_idle(); };
  while (work_.wait(lock, stop, has_work) && !stop.stop_requested()) {
    try {
      nap = advance() ? shortest_nap : std::min(2 * nap, longest_nap);
    } catch (...) {
      failure_ = std::current_exception();
    }
    lock.unlock();
    std::this_thread::sleep_for(nap);
    lock.lock();
  }
}

ExchangeProgress::Waiting::Waiting(ExchangeProgress& progress) : progress_(progress) {
  const std::lock_guard lock(mpi_mutex());
  ++progress_.waiting_;
}

ExchangeProgress::Waiting::~Waiting() {
  {
    const std::lock_guard lock(mpi_mutex());
    --progress_.waiting_;
  }
  progress_.work_.notify_one();
}

void ExchangeProgress::Pause::after(bool moved) {
  constexpr std::chrono::microseconds nap{50};
  idle_ = moved ? 0 : idle_ + 1;
  // By the clock: beside other processes, a yield may take their whole time slices.
  if (idle_ == spins + 1) naps_from_ = Clock::now() + yielding;
  if (naps()) {
    std::this_thread::sleep_for(nap);
  } else if (idle_ > spins) {
    std::this_thread::yield();
  } else {
    spin();
  }
}

}  // namespace lockstep
