#include <boost/test/unit_test.hpp>

#include "comm/allocation_count.hpp"
#include "lockstep/checkpointing/state_snapshot.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/engine/engine.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "train/train_rig.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace lockstep;
using Rig = lockstep::test::TrainRig;

namespace {

Communicator* world = nullptr;

/// A checkpoint's tensors, by group.
using Tensors = std::map<std::string, std::vector<NamedTensor>>;

/// What rank 0's writer gets; elsewhere nothing.
Tensors drained(StateSnapshot& snapshot) {
  Tensors tensors;
  while (auto stored = snapshot.next()) {
    tensors[stored->group].push_back(std::move(stored->tensor));
  }
  return tensors;
}

StateSnapshot::Source source_of(Rig& rig) {
  return {.engine = rig.engine(),
          .transfer = rig.state(),
          .optimizer = rig.optimizer(),
          .average = rig.average()};
}

/// The values of the tensors with these names, concatenated.
std::vector<float> values_of(const std::vector<NamedTensor>& tensors, const auto& names) {
  std::vector<float> all;
  for (const auto& named : names) {
    const auto found = std::ranges::find(tensors, named.name, &NamedTensor::name);
    BOOST_REQUIRE(found != tensors.end());
    all.insert(all.end(), found->values.begin(), found->values.end());
  }
  return all;
}

/// The current state of all ranks, gathered by the rig.
struct Expected {
  explicit Expected(Rig& rig) : parameters(rig.all_parameters()), statistics(rig.statistics()) {
    const auto names = rig.optimizer().slot_names();
    for (std::size_t slot = 0; slot < names.size(); ++slot) {
      const bool is_average = names[slot] == ema_slot;
      slots[is_average ? ema_group : slot_group(names[slot])] = rig.all_of_slot(slot);
    }
    const auto averaged = rig.average()->statistics();
    averaged_statistics.assign(averaged.begin(), averaged.end());
  }
  void check(const Tensors& found, const Graph& graph) const {
    BOOST_TEST(found.size() == 1 + slots.size());
    const auto& model = found.at(model_group);
    BOOST_TEST(model.size() == graph.parameters().size() + graph.statistics().size());
    BOOST_TEST((values_of(model, graph.parameters()) == parameters));
    BOOST_TEST((values_of(model, graph.statistics()) == statistics));
    BOOST_TEST((averaged_statistics != statistics));
    BOOST_TEST((values_of(found.at(ema_group), graph.statistics()) == averaged_statistics));
    for (const auto& [group, values] : slots) {
      BOOST_TEST(found.at(group).size() ==
                 graph.parameters().size() + (group == ema_group ? graph.statistics().size() : 0));
      BOOST_TEST((values_of(found.at(group), graph.parameters()) == values), group);
    }
  }

  std::vector<float> parameters;
  std::vector<float> statistics;
  std::vector<float> averaged_statistics;
  std::map<std::string, std::vector<float>> slots;
};

/// Saves twice, so that the memory is reused.
void check_snapshot(Rig::Options options) {
  BOOST_TEST_CONTEXT("mode " << static_cast<int>(options.shard) << ", groups of "
                             << options.shard_group) {
    options.global_batch = 24;
    options.optimizer = OptimizerKind::adamw;
    options.lr = 1e-3;
    options.ema_decay = 0.5;
    Rig rig(*world, options);
    StateSnapshot snapshot(source_of(rig), world->rank() == 0);
    for (int save = 0; save < 2; ++save) {
      for (int step = 0; step < 2; ++step) rig.run();
      rig.state().await_gathers();
      const Expected expected(rig);
      snapshot.take();
      rig.run();
      const Tensors tensors = drained(snapshot);
      if (world->rank() == 0) {
        expected.check(tensors, rig.engine().graph());
      } else {
        BOOST_TEST(tensors.empty());
      }
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_snapshot_holds_the_state_of_its_boundary) {
  for (const ShardMode mode : {ShardMode::none, ShardMode::optimizer, ShardMode::full}) {
    check_snapshot({.shard = mode});
  }
}

BOOST_AUTO_TEST_CASE(the_first_shard_group_gives_the_state) {
  for (const std::int64_t group : {1, 2, 4}) {
    if (world->size() % group != 0) continue;
    check_snapshot({.shard = ShardMode::hybrid, .shard_group = group});
  }
}

BOOST_AUTO_TEST_CASE(devices_give_their_state) {
  check_snapshot({.device = true});
  check_snapshot({.device = true, .shard = ShardMode::full});
  check_snapshot({.device = true, .shard = ShardMode::hybrid, .shard_group = 1});
}

BOOST_AUTO_TEST_CASE(taking_a_snapshot_allocates_nothing) {
  for (const ShardMode mode : {ShardMode::none, ShardMode::full}) {
    Rig rig(*world, {.global_batch = 24, .shard = mode});
    rig.run();
    rig.state().await_gathers();
    StateSnapshot snapshot(source_of(rig), world->rank() == 0);
    const long before = test::allocation_count();
    snapshot.take();
    BOOST_TEST(test::allocation_count() == before);
  }
}

int main(int argc, char** argv) {
  const MpiEnvironment mpi(argc, argv);
  const auto comm = make_mpi_communicator();
  world = comm.get();
  return boost::unit_test::unit_test_main([] { return true; }, argc, argv);
}
