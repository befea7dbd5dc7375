#include "../../src/parallel/gradient_reducer.hpp"

#include "comm/allocation_count.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "parallel/delaying_communicator.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;
using test::DelayingCommunicator;

namespace {

constexpr std::size_t values_per_bucket = 32;

std::vector<Bucket> equal_buckets(std::size_t count) {
  std::vector<Bucket> buckets;
  for (std::size_t i = 0; i < count; ++i) {
    buckets.push_back({.begin = i * values_per_bucket, .end = (i + 1) * values_per_bucket});
  }
  return buckets;
}

/// A reducer over `count` equal buckets and a link that delays each one.
struct Bench {
  Bench(std::size_t count, DelayingCommunicator::Clock::duration delay)
      : arena(count * values_per_bucket),
        self(make_self_communicator()),
        link(*self, delay, count),
        reducer(link, arena, equal_buckets(count)) {}

  std::vector<float> arena;
  std::unique_ptr<Communicator> self;
  DelayingCommunicator link;
  GradientReducer reducer;
};

/// Starts the buckets that remain and waits for all, as the end of a step does.
void finish(GradientReducer& reducer) {
  reducer.start_until(reducer.buckets().size());
  for (std::size_t i = 0; i < reducer.buckets().size(); ++i) reducer.await(i);
}

}  // namespace

BOOST_AUTO_TEST_CASE(reductions_are_hidden_by_backward) {
  constexpr std::size_t buckets = 10;
  constexpr auto delay = 20ms;
  // Only the last bucket's delay cannot be hidden: a tenth of all delays.
  const double most = 0.3 * std::chrono::duration<double>(delay).count() * buckets;
  double exposed = 2 * most;
  // The best of five runs, because a thread that loses its core waits longer.
  for (int run = 0; run < 5 && exposed >= most; ++run) {
    Bench bench(buckets, delay);

    // The delays together take 200 ms, backward 250 ms.
    bench.reducer.begin();
    for (std::size_t i = 1; i < buckets; ++i) {
      std::this_thread::sleep_for(25ms);
      bench.reducer.start_until(i);
      bench.reducer.progress();
    }
    std::this_thread::sleep_for(25ms);
    bench.reducer.progress();
    const auto backward_ended = DelayingCommunicator::Clock::now();
    finish(bench.reducer);

    const std::chrono::duration<double> waited =
        DelayingCommunicator::Clock::now() - backward_ended;
    exposed = std::min(exposed, waited.count());
    BOOST_TEST((bench.link.starts().front() < backward_ended - 150ms));
  }
  BOOST_TEST(exposed < most);
}

BOOST_AUTO_TEST_CASE(buckets_start_once_and_in_order) {
  std::vector<float> arena(100);
  const auto self = make_self_communicator();
  DelayingCommunicator link(*self, 0ms, 4);
  GradientReducer reducer(link, arena,
                          {{.begin = 0, .end = 10}, {10, 30}, {30, 60}, {.begin = 60, .end = 100}});
  using Counts = std::vector<std::size_t>;
  const auto started = [&](std::size_t end) {
    reducer.start_until(end);
    return link.counts();
  };
  reducer.begin();

  BOOST_TEST(started(0).empty());
  BOOST_TEST((started(1) == Counts{10}));
  BOOST_TEST((started(1) == Counts{10}));
  BOOST_TEST((started(3) == Counts{10, 20, 30}));
  finish(reducer);
  BOOST_TEST((link.counts() == Counts{10, 20, 30, 40}));
}

BOOST_AUTO_TEST_CASE(progress_tests_what_is_in_flight) {
  Bench bench(3, 50ms);
  bench.reducer.begin();
  bench.reducer.start_until(1);
  const int before = bench.link.tests();

  for (int primitive = 0; primitive < 5; ++primitive) bench.reducer.progress();

  BOOST_TEST(bench.link.tests() - before == 5);
  finish(bench.reducer);
}

BOOST_AUTO_TEST_CASE(each_step_starts_with_no_state_of_the_last) {
  Bench bench(3, 10ms);
  for (int step = 0; step < 3; ++step) {
    bench.link.forget();

    bench.reducer.begin();
    bench.reducer.start_until(1);
    BOOST_TEST(bench.link.starts().size() == 1u);
    finish(bench.reducer);

    BOOST_TEST(bench.link.starts().size() == 3u);
  }
}

BOOST_AUTO_TEST_CASE(a_step_allocates_nothing) {
  Bench bench(8, 0ms);
  const long before = test::allocation_count();

  bench.reducer.begin();
  for (std::size_t end = 0; end < 8; ++end) {
    bench.reducer.start_until(end);
    bench.reducer.progress();
  }
  finish(bench.reducer);

  BOOST_TEST(test::allocation_count() == before);
}
