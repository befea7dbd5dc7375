#include "hybrid_advice.hpp"

#include "lockstep/models/models.hpp"
#include "lockstep/parallel/step_prediction.hpp"

#include <boost/test/unit_test.hpp>

#include <optional>
#include <string>

using namespace lockstep;

namespace {

constexpr double images_per_second = 3000;

const Graph& resnet50() {
  static const Graph graph = make_model(
      "resnet50", {.image = {.channels = 3, .height = 224, .width = 224}, .classes = 1000});
  return graph;
}

Config config_of(ShardMode shard) {
  Config config;
  config.batch_size = 256;
  config.shard = shard;
  return config;
}

/// The advice for the steps that a network of `node_rate` bytes per second takes.
std::optional<std::string> advice(ShardMode shard, int ranks, int nodes, double node_rate = 1e9) {
  const Config config = config_of(shard);
  const Cluster cluster{.nodes = nodes,
                        .ranks_per_node = ranks / nodes,
                        .node_rate = node_rate,
                        .local_rate = default_local_rate,
                        .round_seconds = default_round_seconds};
  const PredictedStep step = predict_step(config, resnet50(), cluster, images_per_second);
  return hybrid_advice(
      config, resnet50(), ranks, nodes,
      {.step = step.total, .waiting = step.exposed(), .images_per_second = images_per_second});
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_slow_network_between_nodes_is_worth_hybrid) {
  const auto found = advice(ShardMode::full, 512, 64);

  BOOST_TEST_REQUIRE(found.has_value());
  BOOST_TEST(
      *found ==
      "--shard full over all 512 ranks takes 0.314 s a step, of which rank 0 waits 0.229 s "
      "for messages; --shard hybrid --shard-group 8 may take less, if a rank has the memory "
      "(see lockstep inspect --ranks). To predict both: lockstep scale --nodes 64 "
      "--gpus-per-node 8 --images-per-second 3000.00, with the rates of the network and this "
      "run's options");
}

BOOST_AUTO_TEST_CASE(a_fast_network_few_ranks_and_one_node_get_no_advice) {
  BOOST_TEST(!advice(ShardMode::full, 512, 64, 50e9).has_value());
  BOOST_TEST(advice(ShardMode::full, 64, 8).has_value());
  BOOST_TEST(!advice(ShardMode::full, 56, 7).has_value());
  BOOST_TEST(!advice(ShardMode::full, 64, 1).has_value());
}

BOOST_AUTO_TEST_CASE(other_modes_and_unequal_nodes_get_no_advice) {
  const ShardingWatch::Means means{.step = 1, .waiting = 0.8, .images_per_second = 3000};
  BOOST_TEST(hybrid_advice(config_of(ShardMode::full), resnet50(), 512, 64, means).has_value());
  BOOST_TEST(!hybrid_advice(config_of(ShardMode::full), resnet50(), 510, 64, means).has_value());
  for (const ShardMode shard : {ShardMode::none, ShardMode::optimizer, ShardMode::hybrid}) {
    BOOST_TEST(!hybrid_advice(config_of(shard), resnet50(), 512, 64, means).has_value());
  }
}
