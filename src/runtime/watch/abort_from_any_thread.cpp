#include "abort_from_any_thread.hpp"

#include "lockstep/runtime/mpi_environment.hpp"

#include <chrono>
#include <cstdlib>
#include <thread>

namespace lockstep::watch {

void abort_from_any_thread(ExitStatus status) {
  std::thread([status] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    std::_Exit(static_cast<int>(status));
  }).detach();
  abort_job(static_cast<int>(status));
}

}  // namespace lockstep::watch
