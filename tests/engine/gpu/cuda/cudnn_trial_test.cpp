#include "engine/gpu/cuda/cudnn_trial.hpp"

#include "engine/gpu/cuda/check.hpp"
#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <string>

using namespace lockstep;
using namespace lockstep::gpu::cuda;

namespace {

/// State of the CUDA runtime's stand-in.
struct Standin {
  std::size_t most_bytes = 1 << 20;  ///< limit of one allocation
  float host_ms = 0;                 ///< the host's clock
  float device_ms = 0;               ///< when the queued work ends
  void run(float launch, float work) {
    host_ms += launch;
    device_ms = std::max(device_ms, host_ms) + work;
  }
  bool error_left = false;  ///< the runtime's next call would return it
  std::map<const void*, float> stamps;
};
Standin& standin() {
  static Standin instance;
  return instance;
}

/// Times candidates by number. `ms`: the time of a run by candidate; a candidate without a time
/// fails and leaves an error in the runtime.
std::int64_t fastest_of(const std::vector<std::int64_t>& candidates,
                        const std::map<std::int64_t, float>& ms, std::size_t workspace = 16) {
  return fastest(candidates, {.x = 16, .weights = 16, .y = 16, .workspace = workspace}, nullptr,
                 [&](std::int64_t candidate, const TrialMemory& memory) {
                   BOOST_TEST(memory.workspace != nullptr);
                   if (!ms.contains(candidate)) {
                     standin().error_left = true;
                     fail(ExitStatus::internal, "candidate {} fails", candidate);
                   }
                   standin().run(0, ms.at(candidate));
                 });
}

struct Fresh {
  Fresh() { standin() = {}; }
};

}  // namespace

// The runtime functions that trials call.
extern "C" {
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  if (bytes > standin().most_bytes) return cudaErrorMemoryAllocation;
  *memory = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = static_cast<cudaEvent_t>(std::malloc(1));
  return standin().error_left ? cudaErrorUnknown : cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  std::free(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  standin().stamps[event] = std::max(standin().device_ms, standin().host_ms);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  standin().host_ms = std::max(standin().host_ms, standin().stamps.at(event));
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
  *ms = standin().stamps.at(stop) - standin().stamps.at(start);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t hold, void* data) {
  const auto begin = std::chrono::steady_clock::now();
  hold(data);
  const std::chrono::duration<float, std::milli> held = std::chrono::steady_clock::now() - begin;
  standin().run(0, held.count());
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  standin().error_left = false;
  return cudaSuccess;
}
}

void lockstep::gpu::cuda::check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(ExitStatus::internal, "{} failed", call);
}

BOOST_FIXTURE_TEST_SUITE(trials, Fresh)

BOOST_AUTO_TEST_CASE(the_fastest_candidate_is_chosen) {
  BOOST_TEST(fastest_of({4, 7, 9}, {{4, 3.0F}, {7, 1.0F}, {9, 2.0F}}) == 7);
}

BOOST_AUTO_TEST_CASE(the_time_of_the_host_does_not_count) {
  // The first is faster, but the host needs longer to queue it.
  const std::map<std::int64_t, float> launch{{4, 0.04F}, {7, 0.01F}};
  const std::map<std::int64_t, float> work{{4, 0.02F}, {7, 0.03F}};
  const auto chosen = fastest({4, 7}, {.x = 16, .weights = 16, .y = 16, .workspace = 16}, nullptr,
                              [&](std::int64_t candidate, const TrialMemory&) {
                                standin().run(launch.at(candidate), work.at(candidate));
                              });

  BOOST_TEST(chosen == 4);
}

BOOST_AUTO_TEST_CASE(a_much_slower_candidate_is_run_only_twice) {
  std::map<std::int64_t, int> runs;
  const std::map<std::int64_t, float> ms{{4, 1.0F}, {7, 100.0F}, {9, 2.0F}};
  const auto chosen = fastest({4, 7, 9}, {.x = 16, .weights = 16, .y = 16, .workspace = 16},
                              nullptr, [&](std::int64_t candidate, const TrialMemory&) {
                                ++runs[candidate];
                                standin().run(0, ms.at(candidate));
                              });

  BOOST_TEST(chosen == 4);
  BOOST_TEST(runs[7] == 2);
  BOOST_TEST(runs[9] == runs[4]);
}

BOOST_AUTO_TEST_CASE(failing_candidates_are_skipped) {
  BOOST_TEST(fastest_of({4, 7, 9}, {{7, 5.0F}, {9, 2.0F}}) == 9);
  BOOST_TEST(fastest_of({4, 7, 9}, {{4, 5.0F}}) == 4);
}

BOOST_AUTO_TEST_CASE(the_last_failure_is_reported_if_all_candidates_fail) {
  BOOST_CHECK_EXCEPTION(fastest_of({4, 7}, {}), Error, [](const Error& error) {
    return std::string(error.what()) == "candidate 7 fails";
  });
}

BOOST_AUTO_TEST_CASE(the_first_candidate_is_chosen_if_there_is_no_memory_for_trials) {
  BOOST_TEST(fastest_of({4, 7}, {{4, 3.0F}, {7, 1.0F}}, 2 << 20) == 4);
}

BOOST_AUTO_TEST_SUITE_END()
