#include <boost/test/unit_test.hpp>

#include "../../src/runtime/watch/judge.hpp"
#include "../../src/runtime/watch/topology.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

using namespace lockstep;
using watch::RankReport;
using State = RankReport::State;

namespace {

/// Ranks that have waited for each other for 11 s, in bucket 1 of step 7.
std::vector<RankReport> waiting(int ranks) {
  std::vector<RankReport> all(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    RankReport& report = all[static_cast<std::size_t>(rank)];
    report.rank = rank;
    report.state = State::running;
    report.idle = 11;
    report.reading = {.moves = 5,
                      .step = 7,
                      .saving = -1,
                      .collectives = 40,
                      .wait_count = 0,
                      .bucket = 1,
                      .phase = Phase::communication,
                      .waits_in = CollectiveKind::started_all_reduce,
                      .unhurried = false};
  }
  return all;
}

void put_in(RankReport& report, Phase phase) {
  report.reading.phase = phase;
  report.reading.waits_in = CollectiveKind::none;
}

std::string verdict(const std::vector<RankReport>& reports) {
  std::vector<std::string> names;
  for (const RankReport& report : reports) {
    names.push_back(fmt::format("rank {} (node{})", report.rank, report.rank / 2));
  }
  const auto parents = watch::tree_parents(std::vector<int>(reports.size(), 0), 2);
  return watch::judge(reports, names, {.limit = 10, .parents = parents}).value_or("");
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_job_is_healthy_while_any_rank_makes_progress) {
  auto reports = waiting(4);
  reports[2].idle = 9;
  put_in(reports[2], Phase::save);

  BOOST_TEST(verdict(reports).empty());
}

BOOST_AUTO_TEST_CASE(a_rank_that_waits_for_a_message_alone_makes_no_other_collective) {
  auto reports = waiting(4);
  reports[2].reading.waits_in = CollectiveKind::receive;
  reports[2].reading.collectives = 38;

  const std::string text = verdict(reports);

  BOOST_TEST(contains(text, "all ranks wait for each other"), text);
  BOOST_TEST(contains(text, "; rank 2 (node1) waits in the receive, in communication of step 7"),
             text);
}

BOOST_AUTO_TEST_CASE(the_rank_that_does_not_wait_is_late) {
  auto reports = waiting(4);
  put_in(reports[2], Phase::data);
  reports[2].idle = 12;

  const std::string text = verdict(reports);

  BOOST_TEST(contains(text, "rank 2 (node1) has been late for 12.0 s in data of step 7"));
  BOOST_TEST(contains(text, "; 3 ranks wait in the all-reduce of bucket 1, in communication"));
}

BOOST_AUTO_TEST_CASE(a_wait_for_a_bucket_is_described_by_its_collective) {
  PhaseBoard::Reading reading = waiting(1)[0].reading;
  for (const auto& [kind, text] :
       {std::pair{CollectiveKind::started_reduce_scatter, "the reduce-scatter of bucket 1, in "},
        std::pair{CollectiveKind::started_all_gather, "the all-gather of bucket 1, in "}}) {
    reading.waits_in = kind;
    BOOST_TEST(contains(watch::describe(reading), text));
  }
}

BOOST_AUTO_TEST_CASE(late_ranks_are_named_up_to_a_limit) {
  auto reports = waiting(20);
  for (int rank = 5; rank < 16; ++rank)
    put_in(reports[static_cast<std::size_t>(rank)], Phase::data);

  const std::string text = verdict(reports);

  BOOST_TEST(contains(text, "rank 5 (node2) has been late"));
  BOOST_TEST(contains(text, "rank 12 (node6) and 3 more"));
  BOOST_TEST(!contains(text, "rank 13 (node6)"));
}

BOOST_AUTO_TEST_CASE(a_silent_rank_is_named_before_one_that_does_not_wait) {
  auto reports = waiting(4);
  put_in(reports[1], Phase::data);
  put_in(reports[3], Phase::forward);
  reports[3].silent = 10;

  const std::string text = verdict(reports);

  BOOST_TEST(contains(text, "rank 3 (node1) was last heard of 10.0 s ago, in forward of step 7"));
  BOOST_TEST(contains(text, "; rank 1 (node0) is in data of step 7"));
}

BOOST_AUTO_TEST_CASE(descendants_of_a_silent_rank_are_not_named) {
  auto reports = waiting(7);  // rank 1 is the parent of 3 and 4
  for (const std::size_t rank : {1U, 3U, 4U}) reports[rank].silent = 10;

  const std::string text = verdict(reports);

  BOOST_TEST(contains(text, "rank 1 (node0) was last heard of"));
  BOOST_TEST(!contains(text, "rank 3 (node1) was"));
  BOOST_TEST(!contains(text, "all such ranks"));
}

BOOST_AUTO_TEST_CASE(if_all_ranks_wait_the_one_in_another_collective_is_named) {
  auto reports = waiting(4);
  reports[3].reading.waits_in = CollectiveKind::all_gather;
  reports[3].reading.wait_count = 9;
  reports[3].reading.collectives = 41;

  const std::string text = verdict(reports);

  BOOST_TEST(contains(text, "rank 3 (node1) has waited by itself"));
  BOOST_TEST(contains(text, "the all-gather of 9 values (collective 41)"));
  BOOST_TEST(contains(text, "--debug-collectives"));
}

BOOST_AUTO_TEST_CASE(if_all_ranks_wait_in_the_same_collective_the_verdict_says_so) {
  BOOST_TEST(contains(verdict(waiting(4)), "all ranks wait for each other"));
}

BOOST_AUTO_TEST_CASE(start_up_and_the_first_step_may_take_three_times_the_limit) {
  auto reports = waiting(2);
  put_in(reports[1], Phase::forward);
  reports[1].reading.unhurried = true;

  for (const double idle : {11.0, 29.0}) {
    for (RankReport& report : reports) report.idle = idle;
    BOOST_TEST(verdict(reports).empty());
  }
  for (RankReport& report : reports) report.idle = 31;

  BOOST_TEST(contains(verdict(reports), "rank 1 (node0) has been late"));
}

BOOST_AUTO_TEST_CASE(a_rank_that_is_silent_since_start_up_has_no_longer_limit) {
  auto reports = waiting(2);
  put_in(reports[1], Phase::start_up);
  reports[1].reading.unhurried = true;
  reports[1].silent = 11;

  BOOST_TEST(contains(verdict(reports), "rank 1 (node0) was last heard of 11.0 s ago"));
}

BOOST_AUTO_TEST_CASE(ranks_that_left_are_ignored) {
  auto reports = waiting(3);
  put_in(reports[0], Phase::save);
  reports[1].state = State::left;
  reports[1].silent = 100;
  reports[1].idle = 100;

  BOOST_TEST(contains(verdict(reports), "rank 0 (node0) has been late for 11.0 s in save"));
  reports[0].state = reports[2].state = State::left;
  BOOST_TEST(verdict(reports).empty());
}

BOOST_AUTO_TEST_CASE(a_rank_that_never_connected_is_named_if_no_other_is_late) {
  auto reports = waiting(3);
  reports[2].state = State::unheard;

  BOOST_TEST(contains(verdict(reports), "rank 2 (node1) did not connect to the watchdog"));
}

BOOST_AUTO_TEST_CASE(a_lost_ranks_unfinished_save_is_reported) {
  auto reports = waiting(2);
  reports[0].reading.saving = 6;

  BOOST_TEST(contains(watch::describe_loss(reports[0], "rank 0 (n)", false), "rank 0 (n) is gone"));
  BOOST_TEST(contains(watch::describe_loss(reports[0], "rank 0 (n)", false), "saving step 6"));
}

namespace {

/// Ranks whose hosts wait for their devices, which are in collective 42.
std::vector<RankReport> waiting_for_devices(int ranks) {
  auto reports = waiting(ranks);
  for (RankReport& report : reports) {
    report.reading.waits_in = CollectiveKind::synchronize;
    report.reading.device = {.reached = 42, .completed = 41, .awaited = true};
  }
  return reports;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_gpu_that_has_not_reached_the_others_collective_is_named) {
  for (const int ranks : {2, 4}) {
    auto reports = waiting_for_devices(ranks);
    reports[1].reading.device.reached = 41;

    const std::string text = verdict(reports);

    BOOST_TEST(
        contains(text, "the GPU of rank 1 (node0) has not reached collective 42, in which "));
    BOOST_TEST(contains(text, ranks == 2 ? "in which the GPU of 1 other rank waits"
                                         : "in which the GPUs of 3 other ranks wait"));
    BOOST_TEST(contains(text, "in communication of step 7"));
    BOOST_TEST(!contains(text, "all such ranks"));
  }
}

BOOST_AUTO_TEST_CASE(several_late_gpus_are_all_named) {
  auto reports = waiting_for_devices(4);
  for (const std::size_t rank : {1U, 3U}) reports[rank].reading.device.reached = 41;

  const std::string text = verdict(reports);

  BOOST_TEST(contains(text, "the GPU of rank 1 (node0) has not reached collective 42"));
  BOOST_TEST(contains(text, "all such ranks: rank 1 (node0), rank 3 (node1)"));
}

BOOST_AUTO_TEST_CASE(a_gpu_that_hangs_after_its_last_collective_is_named) {
  auto reports = waiting_for_devices(4);
  // The others have gone on to the next step.
  for (const std::size_t rank : {0U, 1U, 3U}) {
    reports[rank].reading.step = 8;
    reports[rank].reading.collectives = 50;
  }
  reports[2].reading.device = {.reached = 41, .completed = 41, .awaited = true};

  const std::string text = verdict(reports);

  BOOST_TEST(contains(text, "the GPU of rank 2 (node1) has not reached collective 42, in which"));
  BOOST_TEST(contains(text, "the GPUs of 3 other ranks wait"));
}

BOOST_AUTO_TEST_CASE(a_gpu_is_named_while_the_other_ranks_wait_on_the_host) {
  auto reports = waiting(3);
  reports[2].reading.waits_in = CollectiveKind::synchronize;
  reports[2].reading.device = {.reached = 9, .completed = 9, .awaited = true};

  const std::string text = verdict(reports);

  BOOST_TEST(contains(text, "the GPU of rank 2 (node1) has not reached collective 10 ("));
}

BOOST_AUTO_TEST_CASE(a_collective_that_all_gpus_have_reached_hangs_itself) {
  auto reports = waiting_for_devices(4);

  BOOST_TEST(contains(verdict(reports), "all GPUs have reached collective 42, which does not end"));
  reports[0].reading.device.awaited = false;  // its counts are not up to date
  BOOST_TEST(!contains(verdict(reports), "all GPUs"));
}

BOOST_AUTO_TEST_CASE(gpus_are_not_named_for_what_hosts_do) {
  // A host that does not wait.
  auto reports = waiting_for_devices(4);
  put_in(reports[3], Phase::data);
  reports[3].reading.device = {.reached = 41, .completed = 40, .awaited = false};
  BOOST_TEST(contains(verdict(reports), "rank 3 (node1) has been late for 11.0 s in data"));

  // Ranks that call different collectives, which all devices have reached.
  reports = waiting_for_devices(4);
  reports[3].reading.collectives = 39;
  BOOST_TEST(contains(verdict(reports), "rank 3 (node1) has waited by itself"));

  // Counts that nobody has updated since the host began to wait for something else.
  reports = waiting_for_devices(4);
  for (RankReport& report : reports) {
    report.reading.waits_in = CollectiveKind::all_gather;
    report.reading.device.awaited = false;
  }
  reports[3].reading.device.reached = 2;
  BOOST_TEST(contains(verdict(reports), "all ranks wait for each other"));
}
