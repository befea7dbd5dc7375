// Violates an assertion of the library in a child process. The exit status is 0 if that aborts the
// child, 1 if it does not although the build keeps assertions (argument `kept`), and 77 if the
// build may drop them.
#include "lockstep/data/sample_order.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>

int main(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "kept") {
    std::puts("skipped: this build drops assertions (-DLOCKSTEP_ASSERTS=ON keeps them)");
    return 77;
  }
  const pid_t child = fork();
  if (child == 0) {
    const lockstep::SampleOrder no_samples(0, 0);
    _exit(static_cast<int>(no_samples.samples()));
  }
  int status = 0;
  waitpid(child, &status, 0);
  const bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  if (!aborted) std::puts("the library was compiled without its assertions");
  return aborted ? 0 : 1;
}
