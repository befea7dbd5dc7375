#include "lockstep/parallel/gradient_reducer.hpp"

#include "comm/allocation_count.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "parallel/delaying_communicator.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
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
    for (std::size_t i = 1; i <= buckets; ++i) {
      std::this_thread::sleep_for(25ms);
      bench.reducer.gradients_ready(i * values_per_bucket);
    }
    const auto backward_ended = DelayingCommunicator::Clock::now();
    bench.reducer.finish([](const Bucket&) {});

    exposed = std::min(exposed, bench.reducer.timing().exposed_seconds);
    BOOST_TEST(bench.reducer.timing().started_before_finish == buckets - 1);
    BOOST_TEST((bench.link.starts().front() < backward_ended - 150ms));
  }
  BOOST_TEST(exposed < most);
}

BOOST_AUTO_TEST_CASE(exposed_time_is_the_wait_in_finish) {
  Bench bench(4, 20ms);

  // Without backward, nothing is hidden: all 80 ms are exposed.
  bench.reducer.begin();
  bench.reducer.finish([](const Bucket&) {});

  BOOST_TEST(bench.reducer.timing().exposed_seconds >= 0.0799);
  BOOST_TEST(bench.reducer.timing().started_before_finish == 0u);
}

BOOST_AUTO_TEST_CASE(a_bucket_starts_with_its_last_gradient_and_not_before) {
  Bench bench(4, 0ms);
  const auto started = [&](std::size_t filled) {
    bench.reducer.gradients_ready(filled);
    return bench.link.starts().size();
  };

  bench.reducer.begin();

  BOOST_TEST(started(0) == 0u);
  BOOST_TEST(started(values_per_bucket - 1) == 0u);
  BOOST_TEST(started(values_per_bucket) == 1u);
  BOOST_TEST(started(values_per_bucket + 1) == 1u);
  BOOST_TEST(started(3 * values_per_bucket) == 3u);
  BOOST_TEST(started(4 * values_per_bucket) == 3u);  // the last one waits for the tail
  bench.reducer.finish([](const Bucket&) {});
  BOOST_TEST(bench.link.starts().size() == 4u);
}

BOOST_AUTO_TEST_CASE(requests_are_tested_after_every_primitive) {
  Bench bench(3, 50ms);

  bench.reducer.begin();
  bench.reducer.gradients_ready(values_per_bucket);
  const int before = bench.link.tests();
  for (int primitive = 0; primitive < 5; ++primitive) {
    bench.reducer.gradients_ready(values_per_bucket + 1);
  }

  BOOST_TEST(bench.link.tests() - before == 5);
  bench.reducer.finish([](const Bucket&) {});
}

BOOST_AUTO_TEST_CASE(finish_reports_every_bucket_once_and_in_order) {
  Bench bench(5, 1ms);
  std::vector<Bucket> reported;

  bench.reducer.begin();
  bench.reducer.gradients_ready(3 * values_per_bucket);
  bench.reducer.finish([&](const Bucket& bucket) { reported.push_back(bucket); });

  BOOST_TEST((reported == equal_buckets(5)));
}

BOOST_AUTO_TEST_CASE(each_step_starts_with_no_state_of_the_last) {
  Bench bench(3, 10ms);
  for (int step = 0; step < 3; ++step) {
    bench.link.forget();
    int reported = 0;

    bench.reducer.begin();
    bench.reducer.gradients_ready(values_per_bucket);
    const auto finish_begins = DelayingCommunicator::Clock::now();
    bench.reducer.finish([&](const Bucket&) { ++reported; });
    const std::chrono::duration<double> took = DelayingCommunicator::Clock::now() - finish_begins;

    BOOST_TEST(bench.link.starts().size() == 3u);
    BOOST_TEST(reported == 3);
    BOOST_TEST(bench.reducer.timing().started_before_finish == 1u);
    BOOST_TEST(bench.reducer.timing().exposed_seconds <= took.count());
  }
}

BOOST_AUTO_TEST_CASE(a_step_allocates_nothing) {
  Bench bench(8, 0ms);
  const std::function<void(const Bucket&)> nothing = [](const Bucket&) {};
  const long before = test::allocation_count();

  bench.reducer.begin();
  for (std::size_t filled = 0; filled <= bench.arena.size(); ++filled) {
    bench.reducer.gradients_ready(filled);
  }
  bench.reducer.finish(nothing);

  BOOST_TEST(test::allocation_count() == before);
}
