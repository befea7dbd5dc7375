#include "comm/groups_rig.hpp"
#include "comm/mpi_fixture.hpp"
#include "comm/test_seeds.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

using Phase = StandInPhase;

/// An asynchronous error of NCCL on one rank.
struct Failure {
  const char* name;
  Phase phase;
  int where;    ///< the communicator: all ranks, group, replicas
  bool starts;  ///< in the start, whose end all ranks hear of
};
constexpr std::array failures{
    Failure{.name = "init", .phase = Phase::starting, .where = 0, .starts = true},
    Failure{.name = "connect", .phase = Phase::settling, .where = 0, .starts = true},
    Failure{.name = "parent of a split", .phase = Phase::splitting, .where = 0, .starts = true},
    Failure{.name = "split", .phase = Phase::starting, .where = 2, .starts = true},
    Failure{.name = "connect after a split", .phase = Phase::settling, .where = 1, .starts = true},
    Failure{.name = "register", .phase = Phase::registering, .where = 1, .starts = false},
    Failure{.name = "collective", .phase = Phase::settling, .where = 2, .starts = false},
    Failure{.name = "finalize", .phase = Phase::finalizing, .where = 1, .starts = false}};

/// Registers memory of each communicator, and runs two steps.
void run_steps(GroupsRig& rig) {
  for (const auto& comm : rig.comms) {
    const auto arena = std::make_shared<std::vector<float>>(100, 1.0F);
    auto* const data = static_cast<std::byte*>(device_address(arena->data()));
    comm->register_memory({.bytes = {data, 400}, .owner = arena, .symmetric = true});
  }
  for (int step = 0; step < 2; ++step) {
    rig.queue_step();
    rig.all().synchronize();
  }
}

void check_failure(std::uint64_t seed, const Failure& failure) {
  // Ranks end with different collectives in flight, which the stand-in could never complete. So it
  // lives as long as the process.
  auto& rig = *new GroupsRig(usual_size(), 600ms);
  rig.nccl.vary(seed);
  const int failing = static_cast<int>(seed) % rig.rendezvous.size();
  const auto fail_now = [&] {
    rig.nccl.faults.where = failure.where;
    if (rig.rank() == failing) rig.nccl.faults.error_in = failure.phase;
  };
  if (failure.starts) fail_now();

  const auto error = rig.error_of([&] {
    rig.make();
    if (failure.phase != Phase::finalizing) fail_now();
    run_steps(rig);
  });

  BOOST_TEST(error.has_value() == (failure.phase != Phase::finalizing));
  if (error) {
    const std::string what = error->what();
    BOOST_TEST_INFO(what);
    const bool told = failure.starts || rig.rank() == failing;
    BOOST_TEST((what.find(" failed on " + rig.rendezvous.name(failing)) != std::string::npos) ==
               told);
    BOOST_TEST((rig.nccl.counts().aborted > 0 || rig.comms.empty()));
    BOOST_TEST(rig.nccl.counts().finalized == 0);
  }
  fail_now();
  rig.comms.clear();
  if (failure.phase == Phase::finalizing) {
    BOOST_TEST((rig.nccl.counts().aborted > 0) == (rig.rank() == failing));
  }
  BOOST_TEST(rig.nccl.counts().misuses == 0);
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_failure_in_any_phase_ends_all_ranks_whatever_nccl_leaves_open) {
  for (const std::uint64_t seed : seeds()) {
    const Failure& failure = failures[seed % failures.size()];
    BOOST_TEST_CONTEXT("LOCKSTEP_TEST_SEEDS=" << seed << ": " << failure.name) {
      check_failure(seed, failure);
    }
  }
}
