#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/runtime/gpu_place.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/thread_binding.hpp"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

using namespace lockstep;

namespace {

struct Mpi {
  Mpi() {
    auto& suite = boost::unit_test::framework::master_test_suite();
    environment.emplace(suite.argc, suite.argv);
  }
  std::optional<MpiEnvironment> environment;
};

std::vector<int> my_mask() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

/// The mask of each OpenMP thread of the next parallel region.
std::vector<std::vector<int>> masks_of_threads() {
  std::vector<std::vector<int>> masks(static_cast<std::size_t>(omp_get_max_threads()));
#pragma omp parallel
  masks[static_cast<std::size_t>(omp_get_thread_num())] = my_mask();
  return masks;
}

}  // namespace

BOOST_TEST_GLOBAL_FIXTURE(Mpi);

BOOST_AUTO_TEST_CASE(threads_run_on_the_cores_of_the_binding) {
  const std::vector<int> before = my_mask();
  const auto comm = make_mpi_communicator();
  const ProcessGrid grid = make_process_grid();

  const ThreadBinding binding = bind_threads(grid, *comm, 0);
  const auto masks = masks_of_threads();

  // OMP_PROC_BIND, if set, has restricted this thread's mask before main.
  BOOST_TEST(
      std::includes(binding.allowed.begin(), binding.allowed.end(), before.begin(), before.end()));
  BOOST_TEST(omp_get_max_threads() == binding.threads);
  BOOST_TEST(masks.size() == static_cast<std::size_t>(binding.threads));
  for (std::size_t thread = 0; thread < masks.size(); ++thread) {
    const auto expected =
        binding.cores.empty() ? before : std::vector<int>{binding.cores.at(thread)};
    BOOST_TEST((masks[thread] == expected));
  }

  // No core is pinned by two ranks of this node.
  const auto highest = static_cast<std::size_t>(CPU_SETSIZE);
  std::vector<std::int32_t> users(highest, 0);
  for (const int core : binding.cores) ++users[static_cast<std::size_t>(core)];
  comm->all_reduce(std::span(users));
  BOOST_TEST(*std::max_element(users.begin(), users.end()) <= grid.nodes);

  // Threads that read or save may leave the pinned core.
  std::vector<int> mask_of_thread;
  std::thread([&] {
    allow_cores(binding.allowed);
    mask_of_thread = my_mask();
  }).join();
  BOOST_TEST((mask_of_thread == binding.allowed));
  allow_cores(binding.allowed);
}

BOOST_AUTO_TEST_CASE(a_requested_number_of_threads_is_used) {
  const auto comm = make_mpi_communicator();

  const ThreadBinding binding = bind_threads(make_process_grid(), *comm, 3);
  const auto masks = masks_of_threads();
  allow_cores(binding.allowed);

  BOOST_TEST(binding.threads == 3);
  BOOST_TEST(masks.size() == 3U);
}

BOOST_AUTO_TEST_CASE(an_empty_list_of_cores_leaves_the_mask_unchanged) {
  const auto before = my_mask();

  allow_cores({});

  BOOST_TEST((my_mask() == before));
}

BOOST_AUTO_TEST_CASE(a_thread_is_bound_to_the_cores_near_its_gpu) {
  const std::vector<int> before = my_mask();
  const std::vector<int> both{0, 1};
  allow_cores(both);
  if (my_mask() != both) {
    std::printf("not tested: the node of the test has cores 0 and 1\n");
    return allow_cores(before);
  }
  const auto comm = make_mpi_communicator();
  ::setenv("HWLOC_XMLFILE", LOCKSTEP_TEST_TOPOLOGY, 1);
  const FeedingCores near = bind_near_gpu("0000:81:00.0", both, *comm);
  const std::vector<int> bound = my_mask();
  allow_cores(both);
  // The last rank's GPU is at a place that hwloc does not know.
  const bool last = comm->rank() == comm->size() - 1;
  const FeedingCores some = bind_near_gpu(last ? "0001:01:00.0" : "0000:11:00.0", both, *comm);
  ::unsetenv("HWLOC_XMLFILE");
  allow_cores(before);

  BOOST_TEST((near.cores == std::vector{1}));
  BOOST_TEST((bound == near.cores));
  BOOST_TEST(!near.warning.has_value());
  BOOST_TEST((some.cores == (last ? both : std::vector{0})));
  BOOST_TEST_REQUIRE(some.warning.has_value());
  BOOST_TEST(some.warning->starts_with("threads of rank " + std::to_string(comm->size() - 1) +
                                       ": on all 2 cores"));
}
