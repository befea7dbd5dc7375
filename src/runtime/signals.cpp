#include "lockstep/runtime/signals.hpp"

#include <array>
#include <csignal>

namespace lockstep {
namespace {

constexpr std::array<int, 3> handled{SIGUSR1, SIGTERM, SIGINT};

// Global, since a signal handler can write to nothing else.
volatile std::sig_atomic_t received_signal = 0;

void remember(int signal) {
  // A second SIGINT ends the program as soon as this returns.
  if (signal == SIGINT && received_signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  received_signal = signal;
}

}  // namespace

SignalFlag::SignalFlag() {
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : handled) sigaction(signal, &action, nullptr);
  // MPI writes to sockets of ranks that may have died; the write must return an error instead.
  std::signal(SIGPIPE, SIG_IGN);
}

void block_signals() noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

int SignalFlag::received() noexcept {
  return received_signal;
}

}  // namespace lockstep
