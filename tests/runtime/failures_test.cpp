#include <boost/test/unit_test.hpp>

#include "../../src/runtime/watch/failures.hpp"
#include "../../src/runtime/watch/topology.hpp"

#include <optional>
#include <string>
#include <vector>

using namespace lockstep;
using namespace lockstep::watch;
using State = RankReport::State;

namespace {

const std::vector<std::string> names{"rank 0 (a)", "rank 1 (a)", "rank 2 (b)"};

std::vector<RankReport> running() {
  std::vector<RankReport> all(3);
  for (RankReport& each : all) each.state = State::running;
  return all;
}

std::string text_of(const std::optional<Ending>& ending) {
  return ending ? ending->text : "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(without_a_failure_nothing_ends) {
  BOOST_TEST(!Failures().ending(running(), names, 100));
}

BOOST_AUTO_TEST_CASE(the_first_failure_is_named_with_its_status) {
  Failures failures;
  failures.add({.rank = 2, .status = ExitStatus::bad_input, .text = "no such thing"}, 10);
  BOOST_TEST(!failures.ending(running(), names, 10.5));

  const auto alone = failures.ending(running(), names, 11);
  failures.add({.rank = 0, .status = ExitStatus::internal, .text = "remote error"}, 12);
  failures.add({.rank = 0, .status = ExitStatus::internal, .text = "remote error"}, 17);

  BOOST_TEST(text_of(alone) == "rank 2 (b): no such thing");
  BOOST_TEST((alone->status == ExitStatus::bad_input));
  BOOST_TEST(text_of(failures.ending(running(), names, 17)) ==
             "rank 2 (b): no such thing (1 other rank failed too; see the logs)");
}

BOOST_AUTO_TEST_CASE(a_failure_waits_until_a_silent_rank_is_found_or_answers) {
  Failures failures;
  failures.add({.rank = 0, .status = ExitStatus::internal, .text = "remote error"}, 0);
  auto reports = running();

  reports[2].silent = 6;
  BOOST_TEST(!failures.ending(reports, names, 10));
  reports[2].silent = 0;
  reports[1].state = State::unreachable;
  BOOST_TEST(!failures.ending(reports, names, 20));
  BOOST_TEST(failures.ending(reports, names, 40).has_value());
  BOOST_TEST(failures.ending(running(), names, 20).has_value());
}

BOOST_AUTO_TEST_CASE(ranks_replace_a_lost_rank_0_one_after_another) {
  const std::vector<int> deciders{0, 8, 16, 1};

  BOOST_TEST(Turn(8, deciders).is_next());
  BOOST_TEST(!Turn(1, deciders).is_next());
  BOOST_TEST(Turn(8, deciders).seconds_to_wait(false) == 0);
  BOOST_TEST(Turn(8, deciders).seconds_to_wait(true) == 5);
  BOOST_TEST(Turn(16, deciders).seconds_to_wait(false) == 5);
  BOOST_TEST(Turn(1, deciders).seconds_to_wait(false) == 10);
  BOOST_TEST(Turn(8, deciders).patience() == 1);
  BOOST_TEST(Turn(1, deciders).patience() > Turn(16, deciders).patience());
}
