#include "doctor/finding_checks.hpp"
#include "lockstep/doctor/judge.hpp"

using namespace lockstep::doctor;

namespace {

const std::vector<std::string> four_nodes{"node1", "node2", "node3", "node4"};

/// All pairs of these nodes, without faults.
std::vector<NodePairFacts> all_pairs(int nodes = 4) {
  std::vector<NodePairFacts> pairs;
  for (int i = 0; i < nodes; ++i) {
    for (int j = i + 1; j < nodes; ++j) {
      const RouteFacts route{.interface = "ib0", .address = "10.1.0.7"};
      pairs.push_back({.first = i,
                       .second = j,
                       .latency = 2e-6,
                       .bandwidth = 10e9,
                       .routes = {route},
                       .back = {route}});
    }
  }
  return pairs;
}

bool is_of(const NodePairFacts& pair, int node) {
  return pair.first == node || pair.second == node;
}

/// Measures suspects again, with the same results except what `change` does, and returns how many
/// measurements that takes.
template <typename Change>
int confirm(std::vector<NodePairFacts>& pairs, Change change) {
  int count = 0;
  while (NodePairFacts* pair = suspect_pair(four_nodes, pairs)) {
    NodePairFacts again = *pair;
    change(again, ++count);
    add_measurement(*pair, again);
  }
  return count;
}
int confirm(std::vector<NodePairFacts>& pairs) {
  return confirm(pairs, [](NodePairFacts&, int) {});
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_slowest_pair_of_neighbours_is_reported) {
  const std::vector<LinkFacts> links{
      {.first = 0, .second = 1, .same_node = true, .latency = 1e-6, .bandwidth = 9e9},
      {.first = 1, .second = 2, .same_node = false, .latency = 3e-6, .bandwidth = 5e9},
      {.first = 0, .second = 2, .same_node = false, .latency = 2e-6, .bandwidth = 6e9}};

  expect(judge_neighbours(links), Verdict::ok,
         {"1 pair in a node at 1.0 us", "2 pairs across nodes at 3.0 us or less and 5.0 GB/s"});
  expect(judge_neighbours({}), Verdict::ok, {"none"});
}

BOOST_AUTO_TEST_CASE(unreachable_neighbours_fail) {
  const std::vector<LinkFacts> links{
      {.first = 4, .second = 5, .same_node = true, .error = "no message came through in time"}};

  expect(judge_neighbours(links), Verdict::fail, {"ranks 4 and 5", "no message", "/dev/shm"});
}

BOOST_AUTO_TEST_CASE(nodes_that_reach_each_other_are_ok) {
  expect(judge_nodes(four_nodes, all_pairs()), Verdict::ok, {"6 pairs", "2.0 us", "10.0 GB/s"});
  expect(judge_nodes(std::vector<std::string>{"node1"}, {}), Verdict::ok, {"one node"});
}

BOOST_AUTO_TEST_CASE(an_unreachable_pair_is_named_with_its_interface) {
  auto pairs = all_pairs();
  pairs[4].error = "no message came through in time";
  pairs[4].back[0].error = "No route to host";
  pairs[5].error = "no message came through in time";

  expect(judge_nodes(four_nodes, pairs), Verdict::fail,
         {"node2 and node4 do not reach each other by MPI",
          "node4 does not reach node2 over ib0 (10.1.0.7: No route to host)", "1 pair more",
          "--exclude", "NCCL_SOCKET_IFNAME"});
}

BOOST_AUTO_TEST_CASE(a_pair_unreachable_only_by_mpi_is_reported_as_such) {
  auto pairs = all_pairs();
  pairs[0].error = "no message came through in time";

  expect(judge_nodes(four_nodes, pairs), Verdict::fail, {"TCP does, over every interface"});
}

BOOST_AUTO_TEST_CASE(an_interface_to_a_different_host_should_be_excluded) {
  auto pairs = all_pairs();
  pairs[1].routes.push_back({.interface = "docker0",
                             .address = "172.17.0.1",
                             .error = "another host has this address too, and answered"});

  expect(judge_nodes(four_nodes, pairs), Verdict::warn,
         {"node1 does not reach node3 over docker0 (172.17.0.1", "NCCL_SOCKET_IFNAME=^docker0",
          "btl_tcp_if_exclude=lo,docker0"});
}

BOOST_AUTO_TEST_CASE(a_slow_pair_is_named) {
  auto pairs = all_pairs();
  pairs[3].bandwidth = 1e9;

  const auto change = [](NodePairFacts& again, int count) { again.bandwidth -= count * 100e6; };
  BOOST_TEST(confirm(pairs, change) == 2);
  expect(judge_nodes(four_nodes, pairs), Verdict::warn,
         {"node2 and node3 move 1.0 GB/s (the best of 3 measurements: 1.0 GB/s, 900 MB/s, 800 MB/s)"
          " between them, far below the other pairs"});
  pairs = all_pairs();
  pairs[3].bandwidth = 3e9;
  BOOST_TEST(confirm(pairs) == 0);
}

BOOST_AUTO_TEST_CASE(a_pair_that_is_slow_once_is_not_named) {
  auto pairs = all_pairs();
  pairs[3].bandwidth = 1e9;
  pairs[4].bandwidth = 2e9;

  const auto change = [](NodePairFacts& again, int count) {
    if (count > 1) again.bandwidth = 9e9;
  };
  BOOST_TEST(confirm(pairs, change) == 3);
  const Finding finding = judge_nodes(four_nodes, pairs);
  expect(finding, Verdict::ok, {"6 pairs", "9.0 GB/s or more"});
  expect_without(finding, {"measurements"});
}

BOOST_AUTO_TEST_CASE(a_pair_that_fails_when_it_is_measured_again_fails) {
  auto pairs = all_pairs();
  pairs[3].bandwidth = 1e9;

  const auto change = [](NodePairFacts& again, int) {
    again.error = "no message came through in time";
  };
  BOOST_TEST(confirm(pairs, change) == 1);
  expect(judge_nodes(four_nodes, pairs), Verdict::fail,
         {"node2 and node3 do not reach each other"});
}

BOOST_AUTO_TEST_CASE(nodes_with_a_slow_or_a_lossy_link_are_named_with_figures) {
  auto pairs = all_pairs();
  for (NodePairFacts& pair : pairs) {
    pair.segments = {.sent = 10000, .retransmitted = 4};
    if (is_of(pair, 1)) pair.segments.retransmitted = 210;
    if (is_of(pair, 3)) {
      pair.bandwidth = 200e6;
      pair.latency = 41e-3;
    }
  }

  BOOST_TEST(confirm(pairs) == 4);
  expect(judge_nodes(four_nodes, pairs), Verdict::warn,
         {"the link of node2 loses packets: 2.1 % of TCP's segments were sent again (the best of 3 "
          "measurements: 2.1 %, 2.1 %, 2.1 %), best pair 10.0 GB/s, 2.0 us",
          "the link of node4 is slow: best pair 200 MB/s, 41.0 ms (the best of 3 measurements: 200 "
          "MB/s 41.0 ms, ",
          "the median node: 10.0 GB/s, 2.0 us", "--exclude=node2,node4"});
}

BOOST_AUTO_TEST_CASE(a_link_that_is_bad_once_is_not_named) {
  const std::vector<NodePairFacts> sound = all_pairs();
  auto pairs = sound;
  for (NodePairFacts& pair : pairs) {
    if (is_of(pair, 1)) pair.segments = {.sent = 10000, .retransmitted = 210};
    if (is_of(pair, 3)) pair.latency = 41e-3;
  }

  const auto change = [](NodePairFacts& again, int) {
    again.segments = {};
    again.latency = 2e-6;
  };
  BOOST_TEST(confirm(pairs, change) > 0);
  expect(judge_nodes(four_nodes, pairs), Verdict::ok, {"6 pairs"});
}

BOOST_AUTO_TEST_CASE(a_link_with_only_a_long_delay_is_slow) {
  auto pairs = all_pairs();
  for (NodePairFacts& pair : pairs) {
    if (is_of(pair, 3)) pair.latency = 41e-3;
  }

  const Finding finding = judge_nodes(four_nodes, pairs);
  expect(finding, Verdict::warn,
         {"the link of node4 is slow: best pair 10.0 GB/s, 41.0 ms", "--exclude=node4"});
  expect_without(finding, {"node1", "node2", "node3", "loses packets"});
}

BOOST_AUTO_TEST_CASE(a_few_retransmitted_segments_may_be_chance) {
  auto pairs = all_pairs();
  for (NodePairFacts& pair : pairs) {
    if (is_of(pair, 1)) pair.segments = {.sent = 100, .retransmitted = 4};
  }

  expect(judge_nodes(four_nodes, pairs), Verdict::ok, {"6 pairs"});
}

BOOST_AUTO_TEST_CASE(losses_between_all_nodes_are_no_reason_to_exclude_any) {
  auto pairs = all_pairs();
  for (NodePairFacts& pair : pairs) pair.segments = {.sent = 10000, .retransmitted = 300};
  pairs[2].segments.retransmitted = 120;

  const Finding finding = judge_nodes(four_nodes, pairs);
  expect(finding, Verdict::warn,
         {"packets are lost between all nodes: at least 1.2 % of TCP's segments were sent again; ",
          "look at the switch, or at the cables of several nodes"});
  expect_without(finding, {"--exclude", "node1", "node2", "node3", "node4"});
  BOOST_TEST((finding.values.back() == std::pair<std::string, double>("loss", 0.012)));
  BOOST_TEST(confirm(pairs) == 2);
  expect(judge_nodes(four_nodes, pairs), Verdict::warn, {"(the best of 3 measurements: 1.2 %, "});
}

BOOST_AUTO_TEST_CASE(two_lossy_links_of_three_cannot_be_told_from_three) {
  const std::vector<std::string> three_nodes{"node1", "node2", "node3"};
  auto pairs = all_pairs(3);
  for (NodePairFacts& pair : pairs) {
    for (const int node : {0, 1}) {
      if (is_of(pair, node)) pair.segments = {.sent = 10000, .retransmitted = 300};
    }
  }

  const Finding finding = judge_nodes(three_nodes, pairs);
  expect(finding, Verdict::warn, {"between all nodes", "3.0 %"});
  expect_without(finding, {"--exclude"});
}

BOOST_AUTO_TEST_CASE(one_lossy_link_of_three_is_named) {
  const std::vector<std::string> three_nodes{"node1", "node2", "node3"};
  auto pairs = all_pairs(3);
  for (NodePairFacts& pair : pairs) {
    if (is_of(pair, 0)) pair.segments = {.sent = 10000, .retransmitted = 300};
  }

  const Finding finding = judge_nodes(three_nodes, pairs);
  expect(finding, Verdict::warn, {"the link of node1 loses packets", "--exclude=node1"});
  expect_without(finding, {"node2", "node3"});
}

BOOST_AUTO_TEST_CASE(two_nodes_do_not_tell_which_of_them_loses_packets) {
  auto pairs = all_pairs(2);
  pairs[0].segments = {.sent = 10000, .retransmitted = 500};

  const Finding finding = judge_nodes(std::vector<std::string>{"node1", "node2"}, pairs);
  expect(finding, Verdict::ok, {"1 pair"});
  expect_without(finding, {"node1", "node2"});
}

BOOST_AUTO_TEST_CASE(a_slow_link_does_not_hide_a_bad_route) {
  auto pairs = all_pairs();
  for (NodePairFacts& pair : pairs) {
    if (is_of(pair, 3)) pair.latency = 41e-3;
  }
  pairs[0].routes[0].error = "No route to host";

  expect(judge_nodes(four_nodes, pairs), Verdict::warn,
         {"the link of node4 is slow", "--exclude=node4; node1 does not reach node2 over ib0",
          "NCCL_SOCKET_IFNAME=^ib0"});
}

BOOST_AUTO_TEST_CASE(a_route_over_a_lossy_link_is_not_called_bad) {
  auto pairs = all_pairs();
  for (NodePairFacts& pair : pairs) {
    if (is_of(pair, 1)) pair.segments = {.sent = 10000, .retransmitted = 210};
  }
  pairs[0].routes[0].error = "no answer";

  const Finding finding = judge_nodes(four_nodes, pairs);
  expect(finding, Verdict::warn, {"the link of node2 loses packets", "--exclude=node2"});
  expect_without(finding, {"does not reach"});
  pairs[1].routes[0].error = "No route to host";
  expect(judge_nodes(four_nodes, pairs), Verdict::warn,
         {"the link of node2 loses packets", "; node1 does not reach node3 over ib0"});
}

BOOST_AUTO_TEST_CASE(one_bad_pair_is_no_bad_node) {
  auto pairs = all_pairs();
  pairs[3].bandwidth = 1e9;
  pairs[3].segments = {.sent = 10000, .retransmitted = 500};

  expect(judge_nodes(four_nodes, pairs), Verdict::warn, {"node2 and node3 move 1.0 GB/s"});
}

BOOST_AUTO_TEST_CASE(a_slow_network_is_reported) {
  auto pairs = all_pairs();
  for (NodePairFacts& pair : pairs) pair.bandwidth = 110e6;

  expect(judge_nodes(four_nodes, pairs), Verdict::warn, {"110 MB/s", "btl_tcp_if_include"});
  BOOST_TEST(suspect_pair(four_nodes, pairs) == &pairs[0]);
  pairs[4].bandwidth = 90e6;
  BOOST_TEST(suspect_pair(four_nodes, pairs) == &pairs[4]);
  BOOST_TEST(confirm(pairs) == 2);
  expect(judge_nodes(four_nodes, pairs), Verdict::warn,
         {"nodes move 90 MB/s (the best of 3 measurements: 90 MB/s, 90 MB/s, 90 MB/s)"});
}

BOOST_AUTO_TEST_CASE(nodes_without_a_tested_pair_fail) {
  expect(judge_nodes(four_nodes, {}), Verdict::fail, {"could be tried"});
}

BOOST_AUTO_TEST_CASE(clocks_within_a_second_are_ok) {
  const std::vector<ClockFacts> clocks{{.node = "node2", .offset = 0.2, .uncertainty = 0.01},
                                       {.node = "node3", .offset = -0.4, .uncertainty = 0.01}};

  expect(judge_clocks(clocks), Verdict::ok, {"2 nodes within 410.0 ms"});
  expect(judge_clocks({}), Verdict::ok, {"one clock"});
}

BOOST_AUTO_TEST_CASE(a_wrong_clock_is_reported_with_its_node) {
  std::vector<ClockFacts> clocks{{.node = "node2", .offset = 0.2, .uncertainty = 0.01},
                                 {.node = "node3", .offset = -42, .uncertainty = 0.01}};

  expect(judge_clocks(clocks), Verdict::warn,
         {"node3's clock is 42.0 s behind", "--exclude=node3"});
  clocks[1].offset = 42;
  expect(judge_clocks(clocks), Verdict::warn, {"node3's clock is 42.0 s ahead of"});
  // An offset below the uncertainty is not reported.
  clocks[1].uncertainty = 60;
  expect(judge_clocks(clocks), Verdict::ok, {});
}
