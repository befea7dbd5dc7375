#include <boost/test/unit_test.hpp>

#include "../../src/comm/exchange/exchange_communicator.hpp"
#include "../../src/comm/exchange/exchange_progress.hpp"
#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/error.hpp"

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

using namespace lockstep;
using namespace std::chrono_literals;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

/// Ends an operation in the third call of advance(), or throws from then on.
class CountingExchange final : public Exchange {
 public:
  explicit CountingExchange(bool throws) : throws_(throws) {}
  void add(const ExchangeOperation& /*operation*/) override { ++added_; }
  bool advance() override {
    if (is_idle()) return false;
    if (++calls_ < 3) return true;
    if (throws_) fail(ExitStatus::internal, "the third call");
    calls_ = 0;
    thread_ = std::this_thread::get_id();
    ++ended_;
    return true;
  }
  [[nodiscard]] std::uint64_t ended() const noexcept override { return ended_; }
  [[nodiscard]] std::uint64_t added() const noexcept override { return added_; }
  [[nodiscard]] int calls() const noexcept { return calls_; }
  [[nodiscard]] std::thread::id thread() const { return thread_; }

 private:
  bool throws_;
  std::atomic<int> calls_ = 0;
  std::atomic<std::uint64_t> ended_ = 0;
  std::uint64_t added_ = 0;
  std::thread::id thread_;
};

/// Moves something in every other call of advance(), and ends an operation after 20,000.
class SteadyExchange final : public Exchange {
 public:
  void add(const ExchangeOperation& /*operation*/) override { ++added_; }
  bool advance() override {
    if (is_idle()) return false;
    if (++calls_ % 20000 == 0) ++ended_;
    return calls_ % 2 == 1;
  }
  [[nodiscard]] std::uint64_t ended() const noexcept override { return ended_; }
  [[nodiscard]] std::uint64_t added() const noexcept override { return added_; }

 private:
  int calls_ = 0;
  std::uint64_t ended_ = 0;
  std::uint64_t added_ = 0;
};

/// How often this thread has slept.
long naps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/// Waits up to 20 s.
template <typename Condition>
bool becomes_true(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

ExchangeProgress& progress() {
  return ExchangeProgress::of_process();
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_thread_ends_operations_without_calls) {
  CountingExchange exchange(false);
  std::atomic<bool> prepared = false;
  progress().join(exchange, [&prepared] { prepared = true; });
  for (std::uint64_t operation = 0; operation < 3; ++operation) {
    progress().add(exchange, {});
    BOOST_TEST(becomes_true([&] { return exchange.ended() == operation + 1; }));
    BOOST_TEST(progress().is_idle());
  }
  BOOST_TEST(prepared.load());
  progress().leave(exchange);
  BOOST_TEST((exchange.thread() != std::this_thread::get_id()));
}

BOOST_AUTO_TEST_CASE(without_a_thread_only_calls_progress) {
  CountingExchange exchange(false);
  progress().join(exchange, {});
  progress().add(exchange, {});
  std::this_thread::sleep_for(50ms);
  BOOST_TEST(exchange.ended() == 0U);
  progress().wait_until([&] { return exchange.ended() == 1; });
  progress().leave(exchange);
  BOOST_TEST((exchange.thread() == std::this_thread::get_id()));
}

BOOST_AUTO_TEST_CASE(the_waiting_thread_progresses_instead_of_the_other) {
  CountingExchange exchange(false);
  progress().join(exchange, [] {});
  progress().wait_until([&] {
    if (exchange.added() == 0) progress().add(exchange, {});
    return exchange.ended() == 1;
  });
  progress().leave(exchange);
  BOOST_TEST((exchange.thread() == std::this_thread::get_id()));
}

BOOST_AUTO_TEST_CASE(a_wait_does_not_nap_while_something_moves) {
  const auto comm =
      make_exchange_communicator(make_self_communicator(), std::make_unique<SteadyExchange>());
  std::vector<float> values(8);
  Request request = comm->start_all_reduce(std::span(values));
  const long before = naps();
  comm->wait(request);
  BOOST_TEST(request.done());
  BOOST_TEST(naps() - before < 1000);
}

BOOST_AUTO_TEST_CASE(calls_throw_what_the_thread_failed_with) {
  CountingExchange exchange(true);
  progress().join(exchange, [] {});
  progress().add(exchange, {});
  BOOST_TEST(becomes_true([&] { return exchange.calls() >= 3; }));
  const auto throws = [](auto&& work) {
    try {
      work();
    } catch (const Error& error) {
      return std::string(error.what()) == "the third call";
    }
    return false;
  };
  BOOST_TEST(throws([&] {
    while (!progress().try_advance()) continue;
  }));
  BOOST_TEST(throws([&] { progress().add(exchange, {}); }));
  BOOST_TEST(throws([&] { progress().wait_until([] { return false; }); }));
  progress().leave(exchange);
  // A later communicator starts afresh.
  CountingExchange later(false);
  progress().join(later, [] {});
  progress().add(later, {});
  BOOST_TEST(becomes_true([&] { return later.ended() == 1; }));
  progress().leave(later);
}
