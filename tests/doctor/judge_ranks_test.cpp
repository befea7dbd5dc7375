#include "doctor/finding_checks.hpp"
#include "lockstep/doctor/judge.hpp"

#include <numeric>

using namespace lockstep;
using namespace lockstep::doctor;

namespace {

using Launcher = LaunchFacts::Launcher;

WorldFacts world(int size, LaunchFacts launch) {
  return {.size = size,
          .nodes = 1,
          .library = "Open MPI v4",
          .start_seconds = 0.5,
          .launch = std::move(launch)};
}

/// `ranks` ranks on one node, each with `each` consecutive cores.
std::vector<RankFacts> ranks_with(int ranks, int each, int node_cores) {
  std::vector<RankFacts> all;
  for (int rank = 0; rank < ranks; ++rank) {
    RankFacts facts{.rank = rank, .node = "node1", .node_cores = node_cores};
    facts.cores.resize(static_cast<std::size_t>(each));
    std::iota(facts.cores.begin(), facts.cores.end(), rank * each);
    facts.gpu_reason = "no GPU module (it is not built) build it";
    all.push_back(std::move(facts));
  }
  return all;
}

std::vector<RankFacts> with_gpus(int ranks, int gpus) {
  auto all = ranks_with(ranks, 2, 64);
  for (RankFacts& rank : all) {
    rank.gpu_usable = gpus > 0;
    rank.gpus = gpus;
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_CASE(counts_that_agree_are_ok) {
  expect(judge_ranks(world(1, {})), Verdict::ok, {"1 rank on 1 node", "no launcher"});
  expect(judge_ranks(world(4, {.launcher = Launcher::srun, .started = 4})), Verdict::ok,
         {"4 ranks", "srun", "Open MPI v4"});
  expect(judge_ranks(world(4, {.launcher = Launcher::mpirun, .started = 4, .allocated = 4})),
         Verdict::ok, {"4 ranks", "mpirun"});
  expect(judge_ranks(world(1, {.allocated = 1})), Verdict::ok, {"1 rank"});
}

BOOST_AUTO_TEST_CASE(worlds_of_one_rank_under_srun_fail_with_the_pmi_to_use) {
  expect(judge_ranks(world(1, {.launcher = Launcher::srun, .started = 4})), Verdict::fail,
         {"MPI sees 1 rank where srun started 4", "PMI", "world of its own", "--mpi=pmix"});
}

BOOST_AUTO_TEST_CASE(worlds_of_one_rank_under_another_mpirun_fail) {
  expect(judge_ranks(world(1, {.launcher = Launcher::mpirun, .started = 4})), Verdict::fail,
         {"mpirun started 4", "mpirun of the MPI this program was built with"});
}

BOOST_AUTO_TEST_CASE(one_process_of_an_allocation_for_many_fails) {
  expect(judge_ranks(world(1, {.allocated = 4})), Verdict::fail,
         {"Slurm's count is 4", "world of its own", "srun --mpi=pmix or mpirun"});
}

BOOST_AUTO_TEST_CASE(fewer_ranks_than_allocated_tasks_are_reported) {
  expect(judge_ranks(world(2, {.launcher = Launcher::mpirun, .started = 2, .allocated = 4})),
         Verdict::warn, {"2 ranks", "4 tasks", "--ntasks=2"});
}

BOOST_AUTO_TEST_CASE(a_failed_start_is_reported_with_process_and_host) {
  const LaunchFacts launch{.launcher = Launcher::srun, .started = 8, .process = 3};
  expect(judge_start(launch, "node7", "nothing within the 60 s of --timeout"), Verdict::fail,
         {"does not start on node7", "60 s", "process 3 of 8", "--mpi=pmix"});
}

BOOST_AUTO_TEST_CASE(ranks_that_do_not_answer_are_named) {
  expect(judge_answers({}), Verdict::ok, {});
  std::vector<SilentRank> silent{
      {.rank = 5, .node = "node3", .phase = "--data /scratch", .seconds = 60},
      {.rank = 6, .phase = "the messages between nodes", .seconds = 180}};
  expect(judge_answers(silent), Verdict::fail,
         {"rank 5 (node3) at --data /scratch within 60 s",
          "rank 6 at the messages between nodes within 180 s", "--exclude"});
  silent.resize(20, silent.front());
  expect(judge_answers(silent), Verdict::fail, {"12 more"});
}

BOOST_AUTO_TEST_CASE(exclusive_or_evenly_shared_cores_are_ok) {
  expect(judge_cores(ranks_with(4, 8, 32)), Verdict::ok,
         {"4 ranks a node", "8 cores each", "0-7 of 32"});
  auto shared = ranks_with(4, 8, 8);
  for (RankFacts& rank : shared) rank.cores = shared.front().cores;
  expect(judge_cores(shared), Verdict::ok, {"4 ranks a node"});
}

BOOST_AUTO_TEST_CASE(more_ranks_than_cores_are_oversubscribed) {
  auto ranks = ranks_with(4, 2, 2);
  for (RankFacts& rank : ranks) rank.cores = {0, 1};
  expect(judge_cores(ranks), Verdict::warn,
         {"4 ranks share 2 cores on node1", "0-1", "--cpus-per-task"});
}

BOOST_AUTO_TEST_CASE(one_core_of_many_is_reported) {
  expect(judge_cores(ranks_with(2, 1, 64)), Verdict::warn,
         {"one core of node1's 64", "--cpus-per-task=32"});
}

BOOST_AUTO_TEST_CASE(cores_that_overlap_in_part_are_reported) {
  auto ranks = ranks_with(2, 4, 8);
  ranks[1].cores = {3, 4, 5, 6};
  expect(judge_cores(ranks), Verdict::warn, {"overlap in part", "--cpu-bind=cores"});
}

BOOST_AUTO_TEST_CASE(nodes_with_unequal_numbers_of_ranks_are_reported) {
  auto ranks = ranks_with(3, 2, 8);
  ranks[2].node = "node2";
  expect(judge_cores(ranks), Verdict::warn, {"1 to 2 ranks a node", "--ntasks-per-node"});
}

BOOST_AUTO_TEST_CASE(no_gpu_is_ok_if_none_was_allocated) {
  expect(judge_gpus(with_gpus(2, 0)), Verdict::ok, {"none", "no GPU module"});
  auto given = with_gpus(2, 0);
  given[1].gpus_allotted = true;
  expect(judge_gpus(given), Verdict::fail, {"scheduler gave rank 1"});
}

BOOST_AUTO_TEST_CASE(a_rank_without_a_gpu_among_others_fails) {
  auto ranks = with_gpus(2, 2);
  ranks[1].gpu_usable = false;
  ranks[1].gpus = 0;
  expect(judge_gpus(ranks), Verdict::fail, {"rank 0", "none for rank 1"});
}

BOOST_AUTO_TEST_CASE(gpus_for_all_ranks_are_ok) {
  expect(judge_gpus(with_gpus(4, 4)), Verdict::ok,
         {"4 GPUs visible to each rank, all within reach of each other"});
  expect(judge_gpus(with_gpus(1, 1)), Verdict::ok, {"1 GPU visible"});
}

BOOST_AUTO_TEST_CASE(gpus_hidden_from_their_peers_are_reported) {
  expect(judge_gpus(with_gpus(4, 1)), Verdict::warn,
         {"sees 1 GPU beside 3 ranks", "--gpus-per-task", "--gpus-per-node=4"});
}

BOOST_AUTO_TEST_CASE(gpus_without_peer_access_are_reported) {
  auto ranks = with_gpus(4, 4);
  for (RankFacts& rank : ranks) {
    rank.gpu_pairs = 6;
    rank.gpu_pairs_reaching = 6;
  }
  expect(judge_gpus(ranks), Verdict::ok, {"all within reach"});
  ranks[2].gpu_pairs_reaching = 5;
  ranks[2].gpus_apart = "0 and 3";
  expect(judge_gpus(ranks), Verdict::warn,
         {"GPUs 0 and 3 on node1", "5 of 6 pairs", "nvidia-smi topo -m"});
}

BOOST_AUTO_TEST_CASE(fewer_gpus_than_ranks_fail) {
  expect(judge_gpus(with_gpus(4, 2)), Verdict::fail,
         {"4 ranks on node1 see 2 GPUs", "2 ranks a node"});
}

BOOST_AUTO_TEST_CASE(cores_far_from_the_gpu_are_reported) {
  auto ranks = with_gpus(2, 2);  // rank 0 has cores 0 and 1, rank 1 cores 2 and 3
  BOOST_TEST(!judge_locality(ranks).has_value());
  const lockstep::GpuPlace first{.bus_id = "0000:11:00.0",
                                 .near_cores = {0, 1},
                                 .has_far_cores = true,
                                 .nic = lockstep::GpuPlace::Nic::same_switch,
                                 .nics = {"mlx5_0"}};
  const lockstep::GpuPlace second{.bus_id = "0000:81:00.0",
                                  .near_cores = {2, 3},
                                  .has_far_cores = true,
                                  .nic = lockstep::GpuPlace::Nic::far,
                                  .nics = {"mlx5_0"}};
  for (RankFacts& rank : ranks) rank.gpu_places = {first, second};
  const Finding near = judge_locality(ranks).value();
  expect(near, Verdict::ok,
         {"each rank may use cores near its GPU",
          "on the GPU's PCIe switch for 1 rank (rank 0: mlx5_0)",
          "elsewhere in the node for 1 rank (rank 1: mlx5_0)"});
  BOOST_TEST(near.values.front().second == 1);

  for (RankFacts& rank : ranks) rank.gpu_places = {second, first};
  expect(judge_locality(ranks).value(), Verdict::warn,
         {"rank 0 on node1", "cores 0-1, not near GPU 0000:81:00.0", "--bind-to none"});
  // A rank that sees only its own GPU.
  ranks[0].gpu_places = {first};
  ranks[1].gpu_places = {second};
  expect(judge_locality(ranks).value(), Verdict::ok, {"near its GPU"});
  ranks[1].gpu_places = {{.bus_id = "0000:81:00.0", .has_far_cores = true}};
  expect(judge_locality(ranks).value(), Verdict::warn, {"rank 1 on node1", "hwloc"});
}

BOOST_AUTO_TEST_CASE(the_bandwidth_or_error_of_nccl_is_reported) {
  expect(judge_nccl({.bandwidth = 300e9}), Verdict::ok, {"300.0 GB/s"});
  expect(judge_nccl({.error = "NCCL does not start (no route)"}), Verdict::fail, {"no route"});
}
