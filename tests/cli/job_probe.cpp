// Runs run_job with the rank fault that the command line selects; job_test.py checks the outcome.
#include "lockstep/cli/job.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

using namespace lockstep;

int main(int argc, char** argv) {
  const std::string fate = argc > 1 ? argv[1] : "";
  return static_cast<int>(run_job(argc, argv, [&](Job& job) {
    const int rank = job.grid().rank;
    if (fate == "alike") fail(ExitStatus::usage, "all ranks say this");
    if (fate == "agreed") {
      collectively(job.comm(), [&] {
        if (rank == 1) fail(ExitStatus::bad_input, "only rank {} saw this", rank);
      });
    }
    if (fate == "alone") {
      if (rank == 1) fail(ExitStatus::cannot_write, "rank one failed alone");
      job.comm().barrier();  // never ends: rank 1 does not reach it
    }
    if (fate == "late" && rank == 1) fail(ExitStatus::no_input, "after the others were done");
    if (fate == "other" && rank == 0) throw std::runtime_error("not one of ours");
    if (fate == "stopped") return ExitStatus::stopped;
    return ExitStatus::ok;
  }));
}
