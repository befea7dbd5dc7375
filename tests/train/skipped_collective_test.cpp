#include <boost/test/unit_test.hpp>

#include "comm/skipping_communicator.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/comm/checked_communicator.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/parallel/parallel_state.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/watched_communicator.hpp"
#include "lockstep/train/train_step.hpp"

#include <string>

using namespace lockstep;

namespace {

Communicator* world = nullptr;

/// The error of 6 training steps in which the last rank skips reduction `skipped` (counted from 0
/// over all steps; -1: none), or an empty text. `buckets` receives the number of reductions per
/// step.
std::string train_without(int skipped, std::size_t& buckets) {
  const Graph graph = make_model("mini-resnet", {.image = {.channels = 3, .height = 8, .width = 8},
                                                 .classes = 10,
                                                 .width = 8,
                                                 .zero_init_residual = false,
                                                 .label_smoothing = 0});
  const auto engine = make_cpu_engine(graph, {.threads = 1, .tail_size = TailBucket(graph).size()});
  initialize_model(*engine, 3);
  const auto optimizer = make_optimizer(Config{}, engine->layout());
  const auto data = make_synthetic_dataset({.samples = 512,
                                            .image = {.channels = 3, .height = 8, .width = 8},
                                            .classes = 10,
                                            .seed = 5});
  const BatchGeometry geometry{.samples = 512,
                               .global_batch = 8,
                               .world_size = world->size(),
                               .rank = world->rank(),
                               .accumulate = 1};
  const auto loader = make_loader(*data,
                                  {.image = image_shape(graph.input_shape()),
                                   .format = engine->input_format(),
                                   .mean = {0.5F, 0.5F, 0.5F},
                                   .std = {0.25F, 0.25F, 0.25F},
                                   .batch_capacity = geometry.largest_micro_batch(),
                                   .threads = 0},
                                  plan_training_batches(geometry, {}, 10));
  PhaseBoard board;
  CollectiveComparison comparison(
      make_mpi_communicator(), [&] { return board.read().step; },
      std::vector<std::string>(static_cast<std::size_t>(world->size()), "node7"));
  const auto own = make_mpi_communicator();
  CheckedCommunicator checked(*own, comparison, "the host's");
  WatchedCommunicator watched(checked, board);
  const bool last = world->rank() == world->size() - 1 && world->size() > 1;
  test::SkippingCommunicator comm(watched, last ? skipped : -1);
  const auto state = make_replicated_state(
      *engine, comm, comm, {.tail_size = TailBucket(graph).size(), .bucket_bytes = 20000});
  buckets = state->step_end().units;
  TrainStep step(*engine, *state, *optimizer, comm, *loader,
                 {.geometry = geometry, .board = &board});
  try {
    for (int i = 1; i <= 6; ++i) step.run({.number = i, .lr = 0.1});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_that_skips_any_bucket_of_a_step_is_named_at_once) {
  std::size_t buckets = 0;
  BOOST_TEST(train_without(-1, buckets).empty());
  BOOST_TEST_REQUIRE(buckets >= 3U);
  const int of_step = static_cast<int>(buckets);

  // In the second step: the first bucket, the one after it, and the last, which has the tail.
  for (const int skipped : {of_step, of_step + 1, 2 * of_step - 1}) {
    const std::string text = train_without(skipped, buckets);

    if (world->size() == 1) {
      BOOST_TEST(text.empty());
      continue;
    }
    const std::string name = "rank " + std::to_string(world->size() - 1) + " (";
    BOOST_TEST(text.find(name) == 0U, text);
    BOOST_TEST(text.find("as collective " + std::to_string(skipped + 2) + " in step ") !=
                   std::string::npos,
               text);
  }
}

int main(int argc, char** argv) {
  const MpiEnvironment environment(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
