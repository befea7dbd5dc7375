#include "lockstep/core/exit_advice.hpp"

#include <fmt/format.h>

#include <csignal>

namespace lockstep {
namespace {

/// The status of a shell or launcher after a process was ended by a signal.
constexpr int of_signal(int signal) {
  return 128 + signal;
}
constexpr int last_signal_status = of_signal(31);  // standard signals; none of them is real-time

}  // namespace

bool resumes_after(ExitStatus status) noexcept {
  return status == ExitStatus::internal || status == ExitStatus::stopped;
}

bool resumes_after_launcher(int status) noexcept {
  switch (status) {
    case 1:    // MPI could not start, or mpirun got SIGTERM
    case 14:   // Open MPI 5 ended a rank because another one died
    case 205:  // mpirun lost a daemon
    case 244:
      return true;
    default:
      return resumes_after(static_cast<ExitStatus>(status)) ||
             (status > of_signal(0) && status <= last_signal_status);
  }
}

bool is_crash(int status) noexcept {
  return status == of_signal(SIGILL) || status == of_signal(SIGBUS) ||
         status == of_signal(SIGFPE) || status == of_signal(SIGSEGV);
}

bool may_lack_memory(int status) noexcept {
  return status == 1 || status == of_signal(SIGKILL) || status == of_signal(SIGTERM);
}

std::string advice_after(ExitStatus status) {
  return fmt::format("(status {}: {})", static_cast<int>(status),
                     resumes_after(status) ? "submit the same command again; it resumes"
                                           : "the same command would fail again");
}

}  // namespace lockstep
