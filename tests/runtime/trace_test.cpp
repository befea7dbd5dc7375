#include <boost/test/unit_test.hpp>

#include "lockstep/runtime/trace.hpp"

#include <string>
#include <thread>
#include <vector>

using namespace lockstep;

namespace {

TraceEvent event(std::int64_t begin, std::int64_t end) {
  return {.name = "work", .begin = begin, .end = end, .arguments = {{{"step", begin}}}};
}

std::vector<std::int64_t> begins(const TraceRow& row) {
  std::vector<std::int64_t> result;
  for (const TraceEvent& each : row.content().events) result.push_back(each.begin);
  return result;
}

}  // namespace

BOOST_AUTO_TEST_CASE(events_that_end_during_the_recording_are_kept) {
  TraceRecorder recorder(8);
  TraceRow& row = recorder.row("a");
  row.add(event(1, 2));
  const TraceRow::Handle before = row.open_at(3, "long", {});
  recorder.start();
  row.add(event(5, 6));
  row.close_at(7, before);
  recorder.stop();
  row.add(event(8, TraceRecorder::now() + 1));

  const auto content = row.content();

  BOOST_TEST(begins(row) == (std::vector<std::int64_t>{3, 5}), boost::test_tools::per_element());
  BOOST_TEST(content.events[0].end == 7);
  BOOST_TEST(content.events[0].name == std::string("long"));
  BOOST_TEST(content.events[1].arguments[0].value == 5);
  BOOST_TEST(content.dropped == 0);
}

BOOST_AUTO_TEST_CASE(an_event_without_an_end_is_marked_unfinished) {
  TraceRecorder recorder(8);
  TraceRow& row = recorder.row("a");
  recorder.start();
  const TraceRow::Handle open = row.open("save", {{{"step", 4}}});
  recorder.stop();
  const std::int64_t stopped = TraceRecorder::now();

  const auto content = row.content();

  BOOST_TEST_REQUIRE(content.events.size() == 1U);
  BOOST_TEST(!content.events[0].finished);
  BOOST_TEST(content.events[0].end >= content.events[0].begin);
  BOOST_TEST(content.events[0].end <= stopped);
  BOOST_TEST(content.events[0].arguments[0].value == 4);
  // The content stays the same, even after the event has ended.
  row.close(open);
  const auto later = row.content();
  BOOST_TEST_REQUIRE(later.events.size() == 1U);
  BOOST_TEST(!later.events[0].finished);
  BOOST_TEST(later.events[0].end == content.events[0].end);
}

BOOST_AUTO_TEST_CASE(an_event_that_ended_in_time_is_kept_if_closed_late) {
  TraceRecorder recorder(8);
  TraceRow& row = recorder.row("a");
  const TraceRow::Handle save = row.open_at(3, "save", {});
  recorder.start();
  recorder.stop();
  row.close_at(7, save);

  const auto content = row.content();

  BOOST_TEST_REQUIRE(content.events.size() == 1U);
  BOOST_TEST(content.events[0].finished);
  BOOST_TEST(content.events[0].end == 7);
}

BOOST_AUTO_TEST_CASE(events_beyond_the_capacity_are_counted) {
  TraceRecorder recorder(3);
  TraceRow& row = recorder.row("a");
  recorder.start();
  for (int i = 0; i < 10; ++i) row.add(event(i, i + 1));
  std::vector<TraceRow::Handle> handles;
  for (int i = 0; i < 1000; ++i) handles.push_back(row.open("wait", {}));
  for (const TraceRow::Handle handle : handles) row.close(handle);

  BOOST_TEST(begins(row) == (std::vector<std::int64_t>{0, 1, 2}), boost::test_tools::per_element());
  BOOST_TEST(row.content().dropped == 7 + 1000);
}

BOOST_AUTO_TEST_CASE(no_event_begins_after_the_recording) {
  TraceRecorder recorder(8);
  TraceRow& row = recorder.row("a");
  recorder.start();
  recorder.stop();
  row.close(row.open("late", {}));
  const TraceRow::Handle never_closed = row.open("later", {});
  static_cast<void>(never_closed);

  BOOST_TEST(row.content().events.empty());
  BOOST_TEST(row.content().dropped == 0);
}

BOOST_AUTO_TEST_CASE(a_row_is_found_by_its_name) {
  TraceRecorder recorder(8);
  TraceRow& first = recorder.row("first");
  TraceRow& second = recorder.row("second");

  BOOST_TEST(&recorder.row("first") == &first);
  BOOST_TEST(&recorder.row("second") == &second);
  BOOST_TEST_REQUIRE(recorder.rows().size() == 2U);
  BOOST_TEST(recorder.rows()[0]->name() == "first");
}

BOOST_AUTO_TEST_CASE(a_span_records_its_lifetime_and_a_null_row_nothing) {
  TraceRecorder recorder(8);
  TraceRow& row = recorder.row("a");
  recorder.start();
  const std::int64_t before = TraceRecorder::now();
  {
    const TraceSpan span(&row, "span");
    const TraceSpan none(nullptr, "none");
    BOOST_TEST(!row.content().events.at(0).finished);
  }
  const auto content = row.content();

  BOOST_TEST_REQUIRE(content.events.size() == 1U);
  BOOST_TEST(content.events[0].finished);
  BOOST_TEST(content.events[0].begin >= before);
  BOOST_TEST(content.events[0].end <= TraceRecorder::now());
}

BOOST_AUTO_TEST_CASE(threads_record_their_rows_while_another_thread_reads) {
  constexpr int events = 2000;
  TraceRecorder recorder(events);
  recorder.start();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&recorder, i] {
      TraceRow& row = recorder.row("thread " + std::to_string(i));
      for (int n = 0; n < events; ++n) const TraceSpan span(&row, "work", {{{"n", n}}});
    });
  }
  for (int i = 0; i < 50; ++i) {
    for (const TraceRow* row : recorder.rows()) BOOST_TEST(row->content().dropped == 0);
  }
  for (std::thread& thread : threads) thread.join();

  for (const TraceRow* row : recorder.rows()) {
    BOOST_TEST(row->content().events.size() == static_cast<std::size_t>(events));
  }
}

BOOST_AUTO_TEST_CASE(events_that_overlap_are_on_different_lanes) {
  const std::vector<TraceEvent> events{event(0, 10), event(2, 4),   event(3, 12),
                                       event(4, 6),  event(10, 11), event(20, 20)};

  BOOST_TEST(lanes_of(events) == (std::vector<std::size_t>{0, 1, 2, 1, 0, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(lanes_of({}).empty());
}
