#include <boost/test/unit_test.hpp>

#include "../../src/engine/gpu/device_engine.hpp"
#include "engine/gpu/host_device.hpp"
#include "lockstep/checkpointing/model_state.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/engine/cpu_engine.hpp"
#include "lockstep/health/replica_check.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "train/train_rig.hpp"

#include <bit>
#include <optional>
#include <string>

using namespace lockstep;

namespace {

Communicator* world = nullptr;

Graph small_graph() {
  return make_model("mini-resnet", {.image = {.channels = 3, .height = 8, .width = 8},
                                    .classes = 10,
                                    .width = 8,
                                    .zero_init_residual = false,
                                    .label_smoothing = 0});
}

std::vector<std::string> hosts() {
  std::vector<std::string> all;
  for (int rank = 0; rank < world->size(); ++rank) {
    all.push_back("node" + std::to_string(rank) + ".cluster");
  }
  return all;
}

void flip_a_bit(Engine& engine, std::span<float> place, int bit) {
  float value = 0;
  engine.memory().read(place, std::span(&value, 1));
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1U << bit));
  engine.memory().write(std::span<const float>(&value, 1), place);
}

std::string drift(ReplicaCheck& check, std::int64_t step) {
  const std::optional<Error> error = check.run(step);
  if (!error) return "";
  return error->status() == ExitStatus::internal ? error->what() : "another status";
}

/// Name of the tensor that contains the value at `at`, or that is before the gap at `at`.
std::string name_at(const Engine& engine, std::size_t at) {
  const ArenaView* found = nullptr;
  for (const ArenaView& view : engine.layout().views) {
    if (view.offset <= at) found = &view;
  }
  return engine.graph().parameters()[static_cast<std::size_t>(found->parameter)].name;
}

std::string name_of(int rank) {
  return "rank " + std::to_string(rank) + " (node" + std::to_string(rank) + ".cluster)";
}

void check_engine(Engine& engine) {
  initialize_model(engine, 3);
  ReplicaCheck check(engine, *world, hosts());
  BOOST_TEST(drift(check, 10).empty());
  const int last = world->size() - 1;
  const std::size_t end = engine.layout().size() - 1;

  for (const auto& [at, bit] : {std::pair{std::size_t{0}, 0}, {end / 2, 31}, {end, 22}}) {
    const bool mine = world->rank() == last && last > 0;
    const std::span<float> place = engine.parameters().subspan(at, 1);
    if (mine) flip_a_bit(engine, place, bit);
    const std::string text = drift(check, 20);
    if (mine) flip_a_bit(engine, place, bit);

    if (last == 0) {
      BOOST_TEST(text.empty());
      continue;
    }
    const std::string name = name_of(last);
    BOOST_TEST(text.find("drifted apart at step 20: ") != std::string::npos, text);
    BOOST_TEST(text.find(name) != std::string::npos, text);
    BOOST_TEST(text.find("since step 10") != std::string::npos, text);
    BOOST_TEST(text.find(", in " + name_at(engine, at) + " (a bit") != std::string::npos, text);
    if (last > 1) {
      BOOST_TEST(text.find("rank 0") == std::string::npos, text);
      BOOST_TEST(text.find("--exclude=node" + std::to_string(last)) != std::string::npos, text);
    }
  }
  BOOST_TEST(drift(check, 30).empty());

  // Running statistics are replicas too.
  if (world->rank() == 0) engine.running_statistics()[1] += 1;
  const std::string text = drift(check, 40);
  BOOST_TEST(text.empty() == (last == 0));
  if (last > 0) {
    BOOST_TEST(text.find(", in " + engine.graph().statistics()[0].name + " (") != std::string::npos,
               text);
  }
}

/// One value of each unit, among the parameters that the engine holds, in 32 or 16 bits, or in the
/// rank's shard.
std::vector<std::span<float>> places_of(test::TrainRig& rig) {
  std::vector<std::span<float>> places;
  for (std::size_t unit = 0; unit < rig.state().update_ranges().size(); ++unit) {
    const std::span<std::byte> held = rig.engine().held_unit(unit);
    const ParameterRange& range = rig.state().update_ranges()[unit];
    const std::span<float> values =
        held.empty() ? range.parameters.subspan(range.begin, range.end - range.begin)
                     : std::span(reinterpret_cast<float*>(held.data()), held.size() / 4);
    if (!values.empty()) places.push_back(values.subspan(values.size() / 2, 1));
  }
  return places;
}

/// Trains a step with shard groups of `group` ranks, and flips a bit of the last rank's state.
void check_sharded(ShardMode mode, int group, bool device, Precision precision) {
  BOOST_TEST_CONTEXT("mode " << static_cast<int>(mode) << ", groups of " << group << ", "
                             << to_string(precision)) {
    test::TrainRig rig(*world, {.global_batch = 24,
                                .precision = precision,
                                .device = device,
                                .shard = mode,
                                .shard_group = mode == ShardMode::hybrid ? group : 0});
    rig.run();
    rig.state().await_gathers();
    Engine& engine = rig.engine();
    ReplicaCheck check(engine, *world, hosts(), {.sync = &rig.state(), .ranks = group});
    const int size = world->size();
    const int last = size - 1;
    const bool mine = world->rank() == last;
    const bool whole = mode == ShardMode::optimizer || mode == ShardMode::grad;
    const int alike = whole ? size : size / group;
    BOOST_TEST(drift(check, 10).empty());

    for (const std::span<float> place : places_of(rig)) {
      if (mine) flip_a_bit(engine, place, 3);
      const std::string text = drift(check, 20);
      if (mine) flip_a_bit(engine, place, 3);

      if (alike == 1) {
        BOOST_TEST(text.empty(), text);  // no other rank keeps the same values
        continue;
      }
      BOOST_TEST(text.find("drifted apart at step 20: ") != std::string::npos, text);
      BOOST_TEST(text.find(name_of(last)) != std::string::npos, text);
      BOOST_TEST(
          (text.find(".weight") != std::string::npos || text.find(".bias") != std::string::npos),
          text);
      for (int rank = 0; rank < last; ++rank) {
        // Of two ranks that keep the same values, neither is known to be right.
        const bool keeps_the_same = whole || (last - rank) % group == 0;
        BOOST_TEST(
            (text.find(name_of(rank)) != std::string::npos) == (alike == 2 && keeps_the_same),
            text);
      }
    }
    BOOST_TEST(drift(check, 30).empty());

    if (mine) engine.running_statistics()[1] += 1;
    const std::string text = drift(check, 40);
    BOOST_TEST(text.empty() == (last == 0), text);
    if (last > 1) {
      BOOST_TEST(text.find(name_of(last) + " holds other parameters") != std::string::npos, text);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_flipped_bit_in_a_cpus_replica_is_found_and_its_rank_named) {
  const Graph graph = small_graph();
  const auto engine = make_cpu_engine(graph, {.threads = 1, .tail_size = 8});
  check_engine(*engine);
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_in_a_devices_replica_is_found_and_its_rank_named) {
  const Graph graph = small_graph();
  const std::shared_ptr<gpu::Device> device = gpu::make_host_device();
  const auto engine = gpu::make_device_engine(device, graph, {.tail_size = 8});
  check_engine(*engine);
}

BOOST_AUTO_TEST_CASE(a_flipped_bit_in_sharded_state_is_found_and_its_rank_named) {
  for (const Precision precision : {Precision::fp32, Precision::bf16}) {
    for (const bool device : {false, true}) {
      for (const ShardMode mode : {ShardMode::optimizer, ShardMode::grad, ShardMode::full}) {
        check_sharded(mode, world->size(), device, precision);
      }
      for (int group = 1; group <= world->size(); ++group) {
        if (world->size() % group != 0) continue;
        check_sharded(ShardMode::hybrid, group, device, precision);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_unlike_the_majority_differ) {
  using Values = std::vector<std::uint64_t>;
  const auto differing = [](const Values& values) { return differing_ranks(values); };

  BOOST_TEST(differing({}).empty());
  BOOST_TEST(differing({5}).empty());
  BOOST_TEST(differing({5, 5, 5}).empty());
  BOOST_TEST((differing({5, 6, 5}) == std::vector{1}));
  BOOST_TEST((differing({6, 5, 5, 7}) == std::vector{0, 1, 2, 3}));
  BOOST_TEST((differing({6, 5, 5, 7, 5}) == std::vector{0, 3}));
  BOOST_TEST((differing({5, 6}) == std::vector{0, 1}));
}

int main(int argc, char** argv) {
  const MpiEnvironment environment(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
