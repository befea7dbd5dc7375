#include <boost/test/unit_test.hpp>

#include "lockstep/run/trace_text.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <string>

using namespace lockstep;
using Json = nlohmann::json;

namespace {

/// The events of a rank as in the file, as a list.
Json written(const TraceRecorder& recorder, const RankTrace& rank, std::size_t* pieces = nullptr) {
  std::string text = "[";
  std::size_t count = 0;
  write_rank_trace(recorder, rank, [&](std::string_view piece) {
    text += piece;
    ++count;
  });
  if (pieces != nullptr) *pieces = count;
  return Json::parse(text + "0]");
}

std::map<std::int64_t, std::string> thread_names(const Json& list) {
  std::map<std::int64_t, std::string> names;
  for (const Json& each : list) {
    if (each.is_object() && each["name"] == "thread_name")
      names[each["tid"]] = each["args"]["name"];
  }
  return names;
}

TraceEvent event(std::int64_t begin, std::int64_t end) {
  return {.name = "work", .begin = begin, .end = end};
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rank_is_a_process_and_its_rows_are_threads) {
  TraceRecorder recorder(8);
  static_cast<void>(recorder.row("empty"));
  TraceRow& row = recorder.row("phases");
  recorder.start();
  row.add({.name = "forward",
           .begin = 5'000'000'001,
           .end = 5'000'002'003,
           .arguments = {{{"step", 3}, {"micro-step", 0}}}});

  const Json list = written(recorder, {.rank = 3, .host = "a\"b\\c", .first = {}, .last = {}});

  BOOST_TEST(list[0]["name"] == "process_name");
  BOOST_TEST(list[0]["pid"] == 3);
  BOOST_TEST(list[0]["args"]["name"] == "rank 3 on a\"b\\c");
  BOOST_TEST(
      (thread_names(list) == std::map<std::int64_t, std::string>{{1, "empty"}, {2, "phases"}}));
  const Json& last = list[list.size() - 2];
  BOOST_TEST(last["ph"] == "X");
  BOOST_TEST(last["tid"] == 2);
  BOOST_TEST(last["name"] == "forward");
  BOOST_TEST(last["ts"] == 5'000'000.001);
  BOOST_TEST(last["dur"] == 2.002);
  BOOST_TEST(last["args"] == (Json{{"step", 3}, {"micro-step", 0}}));
}

BOOST_AUTO_TEST_CASE(times_are_converted_to_the_clock_of_rank_0) {
  TraceRecorder recorder(8);
  TraceRow& row = recorder.row("phases");
  recorder.start();
  row.add(event(10'000, 12'000));
  row.add(event(20'000, 21'000));

  const Json list = written(recorder, {.rank = 1,
                                       .host = "h",
                                       .first = {.at = 10'000, .offset = -30'000},
                                       .last = {.at = 20'000, .offset = -29'000}});

  BOOST_TEST(list[list.size() - 3]["ts"] == -20.0);
  BOOST_TEST(list[list.size() - 3]["dur"] == 2.2);
  BOOST_TEST(list[list.size() - 2]["ts"] == -9.0);
}

BOOST_AUTO_TEST_CASE(a_row_with_overlapping_events_is_several_threads) {
  TraceRecorder recorder(8);
  TraceRow& row = recorder.row("under way");
  TraceRow& next = recorder.row("next");
  recorder.start();
  row.add(event(0, 10));
  row.add(event(1, 5));
  row.add(event(6, 9));
  next.add(event(0, 1));

  const Json list = written(recorder, {.rank = 0, .host = "h", .first = {}, .last = {}});

  BOOST_TEST((thread_names(list) == std::map<std::int64_t, std::string>{
                                        {1, "under way"}, {2, "under way (2)"}, {3, "next"}}));
  std::map<std::int64_t, int> events;
  for (const Json& each : list) {
    if (each.is_object() && each["ph"] == "X") ++events[each["tid"]];
  }
  BOOST_TEST((events == std::map<std::int64_t, int>{{1, 1}, {2, 2}, {3, 1}}));
}

BOOST_AUTO_TEST_CASE(an_event_that_is_open_at_the_end_is_marked) {
  TraceRecorder recorder(8);
  TraceRow& row = recorder.row("save");
  recorder.start();
  static_cast<void>(row.open("save", {{{"step", 5}}}));
  recorder.stop();

  const Json list = written(recorder, {.rank = 0, .host = "h", .first = {}, .last = {}});

  BOOST_TEST(list[list.size() - 2]["args"] == (Json{{"step", 5}, {"unfinished", 1}}));
}

BOOST_AUTO_TEST_CASE(many_events_are_written_in_pieces_and_dropped_ones_are_counted) {
  TraceRecorder recorder(9000);
  TraceRow& row = recorder.row("phases");
  recorder.start();
  for (int i = 0; i < 9005; ++i) row.add(event(i, i + 1));
  std::size_t pieces = 0;

  const Json list = written(recorder, {.rank = 0, .host = "h", .first = {}, .last = {}}, &pieces);

  BOOST_TEST(pieces > 1U);
  BOOST_TEST(list.size() == 2 + 2 + 9000 + 1U);
  BOOST_TEST(write_rank_trace(recorder, {.rank = 0, .host = "h", .first = {}, .last = {}},
                              [](std::string_view) {}) == 5);
}
