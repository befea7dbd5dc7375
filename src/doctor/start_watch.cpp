#include "lockstep/doctor/start_watch.hpp"

#include "lockstep/core/error.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace lockstep::doctor {
namespace {

constexpr int failed = 1;
/// Added to the signal number for a process killed by a signal, as shells do.
constexpr int signal_base = 128;

/// Waits for the child and returns waitpid's status.
int end_of(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

int exit_status(int end) {
  return WIFSIGNALED(end) ? signal_base + WTERMSIG(end) : WEXITSTATUS(end);
}

enum class Beginning { started, ended, late };

Beginning wait_for(int from_child, std::chrono::duration<double> limit) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() < 0) return Beginning::late;
    pollfd waiting{.fd = from_child, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, static_cast<int>(left.count())) != 1) continue;
    char byte = 0;
    return ::read(from_child, &byte, 1) == 1 ? Beginning::started : Beginning::ended;
  }
}

}  // namespace

StartWatch::StartWatch(std::chrono::duration<double> limit, const Report& report) {
  std::array<int, 2> ends{};
  const pid_t parent = ::getpid();
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    fail(ExitStatus::internal, "cannot make a pipe ({}); check the limits of this node",
         std::strerror(errno));
  }
  const Descriptor from_child(ends[0]);
  to_parent_ = Descriptor(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) {
    fail(ExitStatus::internal, "cannot fork ({}); check the limits of this node",
         std::strerror(errno));
  }
  if (child == 0) {
    // This process ends if the parent is killed.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::raise(SIGKILL);
    return;
  }
  to_parent_.reset();
  switch (wait_for(from_child.get(), limit)) {
    case Beginning::started:
      outcome_ = exit_status(end_of(child));
      return;
    case Beginning::ended: {
      const int end = end_of(child);
      report(
          WIFSIGNALED(end)
              ? fmt::format("the MPI library crashed with signal {}", WTERMSIG(end))
              : fmt::format(
                    "the MPI library ended the process with status {}; what it said stands above",
                    WEXITSTATUS(end)));
      break;
    }
    case Beginning::late:
      report(fmt::format("nothing within the {:g} s of --timeout", limit.count()));
      ::kill(child, SIGKILL);
      static_cast<void>(end_of(child));
      break;
  }
  outcome_ = failed;
}

void StartWatch::started() noexcept {
  const char byte = 1;
  // Errors are ignored: if the parent is gone, this process is killed too.
  [[maybe_unused]] const ssize_t ignored = ::write(to_parent_.get(), &byte, 1);
}

}  // namespace lockstep::doctor
