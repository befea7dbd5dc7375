#include <boost/test/unit_test.hpp>

#include "lockstep/run/restart_decision.hpp"

#include <array>
#include <string>

using namespace lockstep;

namespace {

RestartDecision decide(const RanksEnd& end, const RestartCounts& earlier = {},
                       const RestartLimits& limits = {}) {
  return decide_restart(end, limits, earlier, "none");
}

constexpr std::array relaunches{Relaunch::none, Relaunch::same, Relaunch::fewer};

}  // namespace

BOOST_AUTO_TEST_CASE(success_counts_if_rank_0_has_logged) {
  struct Case {
    LoggedEnd logged;
    bool requires_end;
    bool asked;
    int status;
  };
  for (const Case& one :
       {Case{LoggedEnd::finished, true, false, 0}, Case{LoggedEnd::finished, true, true, 0},
        Case{LoggedEnd::finished, false, false, 0}, Case{LoggedEnd::stopped, true, true, 75},
        Case{LoggedEnd::stopped, true, false, 75}, Case{LoggedEnd::unfinished, true, false, 70},
        Case{LoggedEnd::unfinished, true, true, 70}, Case{LoggedEnd::unfinished, false, false, 0},
        Case{LoggedEnd::nothing, false, false, 70}, Case{LoggedEnd::nothing, true, false, 70},
        Case{LoggedEnd::nothing, false, true, 75}, Case{LoggedEnd::nothing, true, true, 75}}) {
    const RestartDecision decision = decide({.status = 0,
                                             .requires_logged_end = one.requires_end,
                                             .asked_to_stop = one.asked,
                                             .logged = one.logged});

    BOOST_TEST_CONTEXT("log " << static_cast<int>(one.logged) << ", requires " << one.requires_end
                              << ", asked " << one.asked) {
      BOOST_TEST(decision.status == one.status);
      BOOST_TEST(decision.refusal.empty() == (one.status != 0));
      BOOST_TEST(decision.unlogged == (one.logged == LoggedEnd::nothing && !one.asked));
    }
  }
}

BOOST_AUTO_TEST_CASE(another_status_than_0_counts_whatever_the_log_says) {
  for (const LoggedEnd logged : {LoggedEnd::nothing, LoggedEnd::stopped, LoggedEnd::finished}) {
    BOOST_TEST(decide({.status = 137, .requires_logged_end = true, .logged = logged}).status ==
               137);
  }
}

BOOST_AUTO_TEST_CASE(a_run_that_would_fail_again_is_not_restarted) {
  for (const int status : {64, 65, 66, 69, 73, 2, 127, 160, 255}) {
    const RestartDecision decision = decide({.status = status});

    BOOST_TEST(!decision.resumes);
    BOOST_TEST(!decision.in_job);
    BOOST_TEST(decision.refusal == ": the same command cannot resume after status " +
                                       std::to_string(status) + " (docs/exit-status.md)");
  }
}

BOOST_AUTO_TEST_CASE(a_restart_on_fewer_nodes_that_fails_is_one_of_a_new_job) {
  for (const Relaunch relaunch : relaunches) {
    const RestartDecision usage = decide({.status = 64, .relaunch = relaunch});
    const RestartDecision held = decide({.status = 73, .relaunch = relaunch});
    const RestartDecision diverged = decide({.status = 69, .relaunch = relaunch});

    BOOST_TEST(usage.resumes == (relaunch == Relaunch::fewer));
    BOOST_TEST(held.resumes == (relaunch != Relaunch::none));
    BOOST_TEST(!diverged.resumes);
    for (const RestartDecision& decision : {usage, held, diverged}) {
      BOOST_TEST(!decision.in_job);
      BOOST_TEST(decision.refusal.empty() == decision.resumes);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_stop_on_request_gives_back_the_nodes) {
  BOOST_TEST(decide({.status = 70}).in_job);
  BOOST_TEST(decide({.status = 137}).in_job);
  BOOST_TEST(!decide({.status = 75}).in_job);
  BOOST_TEST(!decide({.status = 137, .asked_to_stop = true}).in_job);
}

BOOST_AUTO_TEST_CASE(restarts_are_limited) {
  BOOST_TEST(decide({.status = 70}, {.all = 49}).progress ==
             " at checkpoint none: restart 50 of at most 50");
  BOOST_TEST(decide({.status = 70}, {.all = 49}).refusal.empty());
  BOOST_TEST(decide({.status = 70}, {.all = 50}).refusal == " after 50 restarts (max_restarts=50)");
  BOOST_TEST(decide({.status = 75}, {.all = 1}, {.restarts = 1}).refusal ==
             " after 1 restarts (max_restarts=1)");
  BOOST_TEST(decide({.status = 75}, {}, {.restarts = 0}).refusal ==
             ": no restart is allowed (max_restarts=0)");
}

BOOST_AUTO_TEST_CASE(restarts_need_progress) {
  BOOST_TEST(decide({.status = 70}, {.all = 9, .stalled = 1}).refusal.empty());
  BOOST_TEST(decide({.status = 70}, {.all = 9, .stalled = 2}).refusal ==
             " and still at checkpoint none after 2 restarts (stalled_restarts=1)");
  BOOST_TEST(decide({.status = 70}, {.all = 1, .stalled = 1}, {.stalled = 0}).refusal ==
             " and still at checkpoint none after 1 restarts (stalled_restarts=0)");
}

BOOST_AUTO_TEST_CASE(a_preempted_run_is_not_stalled) {
  RanksEnd end{.status = 75};
  end.preempted = true;

  BOOST_TEST(decide(end, {.all = 5, .stalled = 5}).refusal.empty());
  BOOST_TEST(!decide(end, {.all = 50, .stalled = 5}, {.restarts = 50}).refusal.empty());
}

BOOST_AUTO_TEST_CASE(a_run_whose_ranks_never_logged_is_restarted_once) {
  const RanksEnd silent{.status = 70, .logged = LoggedEnd::nothing};

  BOOST_TEST(decide(silent).refusal.empty());
  BOOST_TEST(decide(silent).unlogged);
  BOOST_TEST(!decide({.status = 75, .logged = LoggedEnd::nothing}).unlogged);
  BOOST_TEST(decide(silent, {.all = 1, .unlogged = 1}).refusal ==
             ": again no rank has written to its log");
  BOOST_TEST(decide({.status = 70}, {.all = 1, .unlogged = 1}).refusal.empty());
}

BOOST_AUTO_TEST_CASE(crashes_are_restarted_twice) {
  const std::string refusal =
      ": a rank crashed or ran out of memory again, after 2 restarts for that reason "
      "(crash_restarts=2)";
  for (const int status : {132, 135, 136, 139}) {
    BOOST_TEST(decide({.status = status}).crashed);
    BOOST_TEST(decide({.status = status}, {.all = 9, .crashed = 1}).refusal.empty());
    BOOST_TEST(decide({.status = status}, {.all = 9, .crashed = 2}).refusal == refusal);
  }
  for (const int status : {1, 137, 143}) {
    BOOST_TEST(!decide({.status = status}).crashed);
    BOOST_TEST(decide({.status = status}, {.all = 9, .crashed = 2}).refusal.empty());
    BOOST_TEST(
        decide({.status = status, .out_of_memory = true}, {.all = 9, .crashed = 2}).refusal ==
        refusal);
  }
  BOOST_TEST(!decide({.status = 75, .out_of_memory = true}).crashed);
  BOOST_TEST(decide({.status = 139}, {}, {.crashes = 0}).refusal != "");
}
