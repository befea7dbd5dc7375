#include <boost/test/unit_test.hpp>

#include "comm/mpi_fixture.hpp"
#include "comm/nccl_stand_in.hpp"
#include "lockstep/comm/mesh.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/runtime/watchdog.hpp"
#include "lockstep/runtime/watched_communicator.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

using namespace lockstep;
using namespace lockstep::test;
using namespace std::chrono_literals;

namespace {

int job_size() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return ranks;
}

/// The last rank is late for a step's collective over its group, and for the one over its replicas;
/// if `group_size` is 0, for one over all ranks.
void check_late_rank(int group_size) {
  Rendezvous rendezvous;
  const int ranks = rendezvous.size();
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<int>> sets{all};
  if (group_size > 0) {
    const Mesh mesh = data_mesh(ranks, group_size);
    sets = {all, mesh.ranks(rendezvous.rank(), {shard_axis}),
            mesh.ranks(rendezvous.rank(), {replica_axis})};
  }
  std::vector<float> values(100, 1.0F);
  const MutableBuffer buffer{device_address(values.data()), 100, ElementType::f32};
  NcclStandIn nccl(sets);
  CudaStream compute = nullptr;
  BOOST_TEST_REQUIRE((nccl.stream_create(&compute) == CudaResult::success));
  const auto devices = make_nccl_communicators(nccl, rendezvous, compute, sets,
                                               {.start_limit = 60s, .wait_limit = 60s});
  const auto host = make_mpi_communicator();
  const bool late = rendezvous.rank() == rendezvous.size() - 1;

  PhaseBoard board;
  std::mutex mutex;
  std::string said;
  std::atomic<bool> told = false;
  std::deque<WatchedCommunicator> comms;
  for (const auto& device : devices) comms.emplace_back(*device, board);
  std::vector<std::string> names(static_cast<std::size_t>(rendezvous.size()));
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = rendezvous.name(static_cast<int>(i));
  Watchdog watchdog(*host, make_process_grid(), board,
                    {.limit = 2s, .names = names, .end_job = [](ExitStatus) {}});
  watchdog.log_to([&](const std::string& line) {
    const std::lock_guard lock(mutex);
    said += line;
    told = true;
  });
  board.begin_step(1);
  board.begin_step(2);
  board.enter(Phase::backward);
  // The late rank joins after its watchdog has reported it.
  for (int i = 0; late && !told && i < 3000; ++i) std::this_thread::sleep_for(10ms);
  const auto reduce = [&](WatchedCommunicator& comm) {
    Request request = comm.start_all_reduce_buffer(buffer, ReduceOp::sum);
    board.enter(Phase::communication);
    comm.wait(request);
  };
  for (std::size_t i = group_size > 0 ? 1 : 0; i < comms.size(); ++i) reduce(comms[i]);
  comms.front().synchronize();
  for (int i = 0; !told && i < 3000; ++i) std::this_thread::sleep_for(10ms);

  BOOST_TEST(values[99] == static_cast<float>(rendezvous.size()));
  const std::lock_guard lock(mutex);
  BOOST_TEST(
      said.find(rendezvous.name(rendezvous.size() - 1) + " has been late for") != std::string::npos,
      said);
  BOOST_TEST(said.find("in backward of step 2, bucket 1") != std::string::npos, said);
  if (rendezvous.size() > 1) {
    BOOST_TEST(said.find("the synchronization with the device, in communication of step 2") !=
                   std::string::npos,
               said);
  }
}

/// Work of a stream that ends when it is told to.
struct Gate final : StandInTask {
  std::atomic<bool> open = false;
  [[nodiscard]] bool attempt() override { return open; }
};

enum class Hang {
  before_collective,  ///< in the compute stream of the last rank
  after_collective,
  in_collective  ///< in NCCL
};

/// A device hangs: all hosts queue two all-reduces, and then wait for their own devices.
void check_hanging_device(Hang hang, const std::string& expected) {
  Rendezvous rendezvous;
  std::vector<float> values(100, 1.0F);
  const MutableBuffer buffer{device_address(values.data()), 100, ElementType::f32};
  NcclStandIn nccl;
  CudaStream compute = nullptr;
  BOOST_TEST_REQUIRE((nccl.stream_create(&compute) == CudaResult::success));
  PhaseBoard board;
  const auto device =
      make_nccl_communicator(nccl, rendezvous, compute,
                             {.start_limit = 60s, .wait_limit = 60s, .progress = &board.device()});
  const auto host = make_mpi_communicator();
  const bool hangs = rendezvous.rank() == rendezvous.size() - 1;
  nccl.count_from_here();
  if (hang == Hang::in_collective) nccl.faults.hanging = 1;
  WatchedCommunicator comm(*device, board);
  std::vector<std::string> names(static_cast<std::size_t>(rendezvous.size()));
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = rendezvous.name(static_cast<int>(i));
  std::mutex mutex;
  std::string said;
  std::atomic<bool> told = false;
  Watchdog watchdog(*host, make_process_grid(), board,
                    {.limit = 1s, .names = names, .end_job = [](ExitStatus) {}});
  watchdog.log_to([&](const std::string& line) {
    const std::lock_guard lock(mutex);
    said += line;
    told = true;
  });
  Gate gate;
  board.begin_step(1);
  board.begin_step(2);
  board.enter(Phase::backward);
  const auto reduce = [&] {
    Request request = comm.start_all_reduce_buffer(buffer, ReduceOp::sum);
    board.enter(Phase::communication);
    comm.wait(request);
  };

  reduce();
  if (hangs && hang == Hang::before_collective) nccl.queues.queue(compute, gate);
  reduce();
  if (hangs && hang == Hang::after_collective) nccl.queues.queue(compute, gate);
  if (hang == Hang::after_collective && !hangs) {
    comm.synchronize_until([&] { return nccl.queues.is_idle(compute); });
    reduce();  // of the next step
  }
  // Until this rank's watchdog has named it; another's may have already.
  comm.synchronize_until([&] { return told.load(); });
  gate.open = true;
  nccl.faults.hanging = -1;
  if (hang == Hang::after_collective && hangs) reduce();
  if (hang != Hang::in_collective) device->synchronize();

  const std::lock_guard lock(mutex);
  const std::string last = rendezvous.name(rendezvous.size() - 1);
  BOOST_TEST(said.find(fmt::format(fmt::runtime(expected), last)) != std::string::npos, said);
}

}  // namespace

// Each of these takes a second, so each runs with one number of ranks.
BOOST_AUTO_TEST_CASE(a_gpu_that_hangs_before_a_collective_is_named) {
  if (job_size() != 4) return;
  check_hanging_device(Hang::before_collective, "the GPU of {} has not reached collective 2");
}

BOOST_AUTO_TEST_CASE(a_gpu_that_hangs_after_its_last_collective_is_named) {
  if (job_size() != 3) return;
  check_hanging_device(Hang::after_collective, "the GPU of {} has not reached collective 3");
}

BOOST_AUTO_TEST_CASE(an_nccl_collective_that_hangs_on_all_gpus_is_named) {
  if (job_size() != 3) return;
  check_hanging_device(Hang::in_collective, "all GPUs have reached collective 2, which does not");
}

BOOST_AUTO_TEST_CASE(a_rank_late_for_ncclallreduce_is_named_while_the_others_wait) {
  check_late_rank(0);
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_late_in_one_group_is_named_in_all_groups) {
  const int ranks = job_size();
  check_late_rank(ranks % 2 == 0 ? ranks / 2 : 1);
}
