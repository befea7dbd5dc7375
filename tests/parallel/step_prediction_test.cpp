#include "lockstep/parallel/step_prediction.hpp"

#include "lockstep/config/config.hpp"
#include "lockstep/models/models.hpp"
#include "lockstep/parallel/tail_bucket.hpp"

#include <array>
#include <boost/test/unit_test.hpp>

using namespace lockstep;

namespace {

constexpr double gbit = 1e9 / 8;

Graph resnet50() {
  return make_model("resnet50",
                    {.image = {.channels = 3, .height = 224, .width = 224}, .classes = 1000});
}

Config config_of(ShardMode shard, std::int64_t group = 8) {
  Config config;
  config.batch_size = 256;
  config.shard = shard;
  config.shard_group = group;
  return config;
}

constexpr std::array modes{ShardMode::none, ShardMode::optimizer, ShardMode::grad, ShardMode::full,
                           ShardMode::hybrid};

}  // namespace

BOOST_AUTO_TEST_CASE(collectives_take_the_time_of_their_bytes) {
  const Cluster flat{.nodes = 8, .ranks_per_node = 1, .node_rate = 100, .local_rate = 1};
  BOOST_TEST(scatter_seconds(flat, all_ranks(flat), 800) == 7.0);  // 700 bytes leave each node
  const Cluster both{.nodes = 4, .ranks_per_node = 2, .node_rate = 100, .local_rate = 1000};
  BOOST_TEST(scatter_seconds(both, all_ranks(both), 800) == 6.0);
  const Cluster slow_memory{.nodes = 4, .ranks_per_node = 2, .node_rate = 1000, .local_rate = 10};
  BOOST_TEST(scatter_seconds(slow_memory, all_ranks(slow_memory), 800) == 40.0);
  Cluster late{
      .nodes = 6, .ranks_per_node = 2, .node_rate = 1e9, .local_rate = 1e9, .round_seconds = 1};
  // A ring between 6 nodes, halving between 9, and one round within each node.
  BOOST_TEST(scatter_seconds(late, all_ranks(late), 1) == 6.0, boost::test_tools::tolerance(1e-6));
  late.nodes = 9;
  BOOST_TEST(scatter_seconds(late, all_ranks(late), 1) == 5.0, boost::test_tools::tolerance(1e-6));
}

BOOST_AUTO_TEST_CASE(cpu_ranks_compute_for_what_they_send) {
  const Cluster cluster{.nodes = 4,
                        .ranks_per_node = 2,
                        .node_rate = 1e9,
                        .local_rate = 100,
                        .host_seconds_per_byte = 0.01};
  BOOST_TEST(host_seconds(cluster, all_ranks(cluster), 800) == 7.0);  // 3 between nodes, 4 within
  BOOST_TEST(scatter_seconds(cluster, all_ranks(cluster), 800) == 7.0);
  StepPlan plan{.actions = {{.kind = StepAction::Kind::start, .bytes = 800},
                            {.kind = StepAction::Kind::compute, .seconds = 20},
                            {.kind = StepAction::Kind::wait}},
                .collectives = 1};
  BOOST_TEST(predict_step(plan, cluster).total == 34.0);
  Cluster gpus = cluster;
  gpus.host_seconds_per_byte = 0;
  BOOST_TEST(predict_step(plan, gpus).total == 20.0);
}

BOOST_AUTO_TEST_CASE(sets_of_ranks_share_a_nodes_links) {
  const Cluster cluster{.nodes = 4, .ranks_per_node = 8, .node_rate = 100, .local_rate = 1e9};
  // Groups of one node use no link. All eight ranks of a node then reduce an eighth of the values
  // with the other nodes at once: the same bytes as in one reduction of all ranks.
  BOOST_TEST(scatter_seconds(cluster, group_ranks(cluster, 8), 800) < 1e-3);
  BOOST_TEST(scatter_seconds(cluster, replica_ranks(cluster, 8), 100) == 6.0);
  BOOST_TEST(scatter_seconds(cluster, all_ranks(cluster), 800) == 6.0);
  // Groups of two nodes, and of half a node.
  BOOST_TEST(scatter_seconds(cluster, group_ranks(cluster, 16), 800) == 4.0);
  BOOST_TEST(scatter_seconds(cluster, replica_ranks(cluster, 16), 50) == 2.0);
  BOOST_TEST(scatter_seconds(cluster, replica_ranks(cluster, 4), 200) == 6.0);
}

BOOST_AUTO_TEST_CASE(buckets_agree_with_a_simulation_of_the_network) {
  // ResNet-50's buckets before the last ones became smaller, at 400 images/s and batch 256,
  // replayed by SimGrid with recursive halving and doubling on links of 92 % of their rate.
  const std::array bytes{30.3e6, 26.3e6, 28.4e6, 17.6e6};
  const std::array ready{0.242, 0.275, 0.384, 0.640};
  struct Case {
    double gbits;
    int nodes;
    double simulated;
  };
  for (const Case& each : {Case{10, 64, 0.674},
                           {10, 512, 0.675},
                           {25, 64, 0.656},
                           {25, 512, 0.657},
                           {100, 64, 0.647},
                           {100, 512, 0.648},
                           {100, 4096, 0.652},
                           {400, 64, 0.645},
                           {400, 4096, 0.649}}) {
    const Cluster cluster{.nodes = each.nodes,
                          .ranks_per_node = 1,
                          .node_rate = 0.92 * each.gbits * gbit,
                          .local_rate = 1e12,
                          .round_seconds = 50e-6};
    StepPlan plan;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      plan.actions.push_back({.seconds = ready[i] - (i > 0 ? ready[i - 1] : 0)});
      plan.actions.push_back(
          {.kind = StepAction::Kind::start, .collective = plan.collectives++, .bytes = bytes[i]});
    }
    for (int i = 0; i < plan.collectives; ++i)
      plan.actions.push_back({.kind = StepAction::Kind::wait, .collective = i});
    BOOST_TEST_CONTEXT(each.gbits << " Gbit/s, " << each.nodes << " nodes") {
      BOOST_TEST(predict_step(plan, cluster).total == each.simulated,
                 boost::test_tools::tolerance(0.015));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_step_without_other_ranks_takes_the_time_of_its_computation) {
  const Graph graph = resnet50();
  const Cluster alone{.nodes = 1, .ranks_per_node = 1, .local_rate = 1};
  for (const ShardMode mode : {ShardMode::none, ShardMode::grad, ShardMode::full}) {
    const PredictedStep time = predict_step(config_of(mode, 1), graph, alone, 512);
    BOOST_TEST(time.compute == 0.5, boost::test_tools::tolerance(1e-9));
    BOOST_TEST(time.total == 0.5, boost::test_tools::tolerance(1e-9));
  }
}

BOOST_AUTO_TEST_CASE(a_step_on_a_slow_network_takes_the_time_of_its_bytes) {
  const Graph graph = resnet50();
  Cluster cluster{.nodes = 16, .ranks_per_node = 8, .node_rate = 1e6, .local_rate = 1e15};
  const double bytes = 4.0 * (25'557'032 + static_cast<double>(TailBucket(graph).size()));
  const double once = 15.0 / 16 * bytes / cluster.node_rate;
  const auto total = [&](ShardMode mode) {
    return predict_step(config_of(mode), graph, cluster, 1e9).total;
  };
  BOOST_TEST(total(ShardMode::none) == 2 * once, boost::test_tools::tolerance(1e-3));
  BOOST_TEST(total(ShardMode::optimizer) == 2 * once, boost::test_tools::tolerance(1e-3));
  BOOST_TEST(total(ShardMode::grad) == 2 * once, boost::test_tools::tolerance(1e-3));
  BOOST_TEST(total(ShardMode::hybrid) == 2 * once, boost::test_tools::tolerance(1e-3));
  // Backward does not gather its first unit again.
  BOOST_TEST(total(ShardMode::full) < 3 * once);
  BOOST_TEST(total(ShardMode::full) > 2.7 * once);
}

BOOST_AUTO_TEST_CASE(steps_become_no_faster_with_slower_links_or_more_nodes) {
  const Graph graph = resnet50();
  for (const ShardMode mode : modes) {
    double before = 0;
    for (const double rate : {800.0, 400.0, 100.0, 25.0, 10.0, 1.0}) {
      const Cluster cluster{.nodes = 64,
                            .ranks_per_node = 8,
                            .node_rate = rate * gbit,
                            .local_rate = 3600 * gbit,
                            .round_seconds = 5e-6};
      const PredictedStep time = predict_step(config_of(mode), graph, cluster, 3000);
      BOOST_TEST(time.total >= before);
      BOOST_TEST(time.exposed() >= 0);
      before = time.total;
    }
    before = 0;
    for (const int nodes : {2, 4, 16, 64, 512, 4096}) {
      const Cluster cluster{.nodes = nodes,
                            .ranks_per_node = 8,
                            .node_rate = 100 * gbit,
                            .local_rate = 3600 * gbit,
                            .round_seconds = 5e-6};
      const double total = predict_step(config_of(mode), graph, cluster, 3000).total;
      BOOST_TEST(total >= before);
      before = total;
    }
  }
}

BOOST_AUTO_TEST_CASE(accumulation_communicates_once) {
  const Graph graph = resnet50();
  const Cluster cluster{.nodes = 16, .ranks_per_node = 1, .node_rate = gbit, .local_rate = gbit};
  Config config = config_of(ShardMode::none);
  const PredictedStep once = predict_step(config, graph, cluster, 3000);
  config.accumulate = 4;
  const PredictedStep four = predict_step(config, graph, cluster, 3000);
  BOOST_TEST(four.compute == 4 * once.compute, boost::test_tools::tolerance(1e-9));
  BOOST_TEST(four.exposed() == once.exposed(), boost::test_tools::tolerance(1e-9));
}

BOOST_AUTO_TEST_CASE(sums_of_synchronised_norms_are_waited_for_in_forward_and_backward) {
  const Graph graph = resnet50();
  constexpr std::size_t norms = 53;
  const Cluster cluster{.nodes = 4,
                        .ranks_per_node = 8,
                        .node_rate = 400 * gbit,
                        .local_rate = default_local_rate,
                        .round_seconds = default_round_seconds};
  for (const ShardMode mode : modes) {
    BOOST_TEST_CONTEXT(static_cast<int>(mode)) {
      Config config = config_of(mode);
      config.accumulate = 2;
      const StepPlanOptions options{.ranks = cluster.ranks(), .images_per_second = 3000};
      const StepPlan local = plan_step(config, graph, options);
      config.batch_norm = BatchNormScope::sync;
      const StepPlan sync = plan_step(config, graph, options);

      BOOST_TEST(sync.collectives == local.collectives + 2 * 2 * static_cast<int>(norms));
      BOOST_TEST(sync.compute_seconds() == local.compute_seconds(),
                 boost::test_tools::tolerance(1e-9));
      // Nothing hides the rounds of these all-reduces: three between nodes and one within, twice.
      const double exposed =
          predict_step(sync, cluster).exposed() - predict_step(local, cluster).exposed();
      BOOST_TEST(exposed > 0.99 * 2 * 2 * norms * 2 * 4 * default_round_seconds);
      double bytes = 0;
      for (std::size_t i = 0; i + 1 < sync.actions.size(); ++i) {
        const StepAction& action = sync.actions[i];
        const StepAction& next = sync.actions[i + 1];
        const bool waits_at_once = action.kind == StepAction::Kind::start &&
                                   next.kind == StepAction::Kind::wait &&
                                   next.collective == action.collective &&
                                   action.what == StepCollective::all_reduce && action.bytes < 50e3;
        if (waits_at_once) bytes += action.bytes;
      }
      constexpr double channels = 26'560;
      BOOST_TEST(bytes == 2 * ((2 * channels + norms) * 8 + 2 * channels * 4));
    }
  }
}
