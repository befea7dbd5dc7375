#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

namespace lockstep::gpu {

/// How a process ended.
struct ProcessEnd {
  int signal = 0;  ///< 0: it returned
  std::string errors;
};

/// Runs `work` in a child process, where no handler of the test's framework catches signals.
template <typename Work>
ProcessEnd run_in_child(const Work& work) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return {.signal = -1, .errors = "pipe failed"};
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGSEGV, SIGABRT}) ::signal(signal, SIG_DFL);
    ::dup2(ends[1], STDERR_FILENO);
    work();
    ::_exit(0);
  }
  ::close(ends[1]);
  ProcessEnd end;
  char buffer[256];
  for (ssize_t count = 0; (count = ::read(ends[0], buffer, sizeof(buffer))) > 0;) {
    end.errors.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  end.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return end;
}

}  // namespace lockstep::gpu
