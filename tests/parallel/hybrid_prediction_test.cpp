#include "lockstep/parallel/hybrid_prediction.hpp"

#include "lockstep/models/models.hpp"
#include "lockstep/parallel/step_prediction.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>

using namespace lockstep;

namespace {

constexpr double images_per_second = 3000;

Graph resnet50() {
  return make_model("resnet50",
                    {.image = {.channels = 3, .height = 224, .width = 224}, .classes = 1000});
}

Config config_of(ShardMode shard) {
  Config config;
  config.batch_size = 256;
  config.shard = shard;
  config.shard_group = 8;
  return config;
}

}  // namespace

BOOST_AUTO_TEST_CASE(hybrid_is_predicted_for_the_network_that_explains_the_measured_step) {
  const Graph graph = resnet50();
  for (const ShardMode mode : {ShardMode::grad, ShardMode::full}) {
    for (const int ranks_per_node : {1, 8}) {
      const Cluster cluster{.nodes = 512,
                            .ranks_per_node = ranks_per_node,
                            .node_rate = 1e9,
                            .local_rate = std::numeric_limits<double>::infinity(),
                            .round_seconds = 5e-6};
      const double full = predict_step(config_of(mode), graph, cluster, images_per_second).total;

      const auto hybrid = predict_hybrid(config_of(mode), graph,
                                         {.nodes = cluster.nodes,
                                          .ranks_per_node = cluster.ranks_per_node,
                                          .seconds = full,
                                          .images_per_second = images_per_second});

      const double expected =
          predict_step(config_of(ShardMode::hybrid), graph, cluster, images_per_second).total;
      BOOST_TEST_REQUIRE(hybrid.has_value());
      BOOST_TEST(hybrid->group == 8);
      BOOST_TEST(hybrid->seconds == expected, boost::test_tools::tolerance(0.01));
      if (mode == ShardMode::full && ranks_per_node == 8) BOOST_TEST(hybrid->seconds < full);
    }
  }
}

BOOST_AUTO_TEST_CASE(ranks_that_form_no_groups_get_no_prediction) {
  const Graph graph = resnet50();
  const auto predict = [&](int nodes, int ranks_per_node) {
    return predict_hybrid(config_of(ShardMode::full), graph,
                          {.nodes = nodes,
                           .ranks_per_node = ranks_per_node,
                           .seconds = 1,
                           .images_per_second = images_per_second});
  };

  BOOST_TEST(!predict(1, 64).has_value());
  BOOST_TEST(!predict(65, 1).has_value());
  BOOST_TEST(predict(64, 1).has_value());
}
