/// Loaded before the ranks of tests. A rank that waits in MPI calls sched_yield again and again,
/// which on Linux leaves it its share of the cores; with more ranks than cores, it takes that time
/// from the ranks that it waits for. Here it sleeps instead.

#include <chrono>
#include <thread>

extern "C" int sched_yield() noexcept {
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  return 0;
}
