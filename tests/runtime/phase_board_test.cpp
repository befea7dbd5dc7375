#include <boost/test/unit_test.hpp>

#include "../../src/runtime/watch/judge.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/watched_communicator.hpp"

#include <string>
#include <vector>

using namespace lockstep;

BOOST_AUTO_TEST_CASE(a_new_board_shows_start_up) {
  const PhaseBoard board;

  BOOST_TEST((board.read().phase == Phase::start_up));
  BOOST_TEST(board.read().step == 0);
  BOOST_TEST(board.read().unhurried);
}

BOOST_AUTO_TEST_CASE(only_the_first_step_is_unhurried_whatever_its_number) {
  PhaseBoard board;
  board.begin_step(51);
  board.enter(Phase::forward);
  BOOST_TEST(board.read().unhurried);

  board.begin_step(52);

  BOOST_TEST(!board.read().unhurried);
  BOOST_TEST(board.read().step == 52);
}

BOOST_AUTO_TEST_CASE(each_change_is_a_move) {
  PhaseBoard board;
  std::uint64_t last = board.read().moves;
  const auto moved = [&] {
    const std::uint64_t before = last;
    last = board.read().moves;
    return last != before;
  };

  board.begin_step(1);
  BOOST_TEST(moved());
  board.enter(Phase::forward);
  BOOST_TEST(moved());
  board.enter(Phase::forward);
  BOOST_TEST(moved());
  board.begin_wait(CollectiveKind::barrier, 0);
  BOOST_TEST(moved());
  board.end_wait();
  BOOST_TEST(moved());
  BOOST_TEST(!moved());
}

BOOST_AUTO_TEST_CASE(progress_of_the_device_is_a_move) {
  PhaseBoard board;
  const std::uint64_t before = board.read().moves;

  board.device().reach(1);
  BOOST_TEST(board.read().moves == before + 1);
  board.device().complete(1);

  BOOST_TEST(board.read().moves == before + 2);
  BOOST_TEST(board.read().device.completed == 1);
}

BOOST_AUTO_TEST_CASE(progress_of_the_saver_counts_only_in_the_save_phase) {
  PhaseBoard board;
  board.begin_step(1);
  board.enter(Phase::data);
  const std::uint64_t before = board.read().moves;
  board.saver_moved();
  BOOST_TEST(board.read().moves == before);

  board.enter(Phase::save);
  const std::uint64_t saving = board.read().moves;
  board.saver_moved();

  BOOST_TEST(board.read().moves == saving + 1);
}

BOOST_AUTO_TEST_CASE(a_watched_communicator_shows_its_bucket_and_its_wait) {
  const auto self = make_self_communicator();
  PhaseBoard board;
  WatchedCommunicator comm(*self, board);
  std::vector<float> values(3, 2.0F);
  board.begin_step(4);
  board.enter(Phase::backward);
  BOOST_TEST(board.read().bucket == 1);

  Request request = comm.start_all_reduce(std::span(values));
  BOOST_TEST(board.read().bucket == 2);
  comm.wait(request);
  comm.barrier();
  comm.synchronize();  // no collective: a rank may wait for its device alone

  BOOST_TEST((board.read().waits_in == CollectiveKind::none));
  BOOST_TEST(board.read().collectives == 2);
  BOOST_TEST(values[2] == 2.0F);
}

namespace {

/// Reads the board during each collective.
class BoardReader final : public Communicator {
 public:
  BoardReader(Communicator& inner, PhaseBoard& board) : inner_(inner), board_(board) {}
  PhaseBoard::Reading seen{};

  [[nodiscard]] int rank() const noexcept override { return inner_.rank(); }
  [[nodiscard]] int size() const noexcept override { return inner_.size(); }
  void barrier() override {
    read_board();
    fail(ExitStatus::internal, "no barrier");
  }
  void all_reduce_buffer(MutableBuffer, ReduceOp) override { read_board(); }
  void broadcast_buffer(MutableBuffer, int) override { read_board(); }
  void all_gather_buffer(ConstBuffer, MutableBuffer) override { read_board(); }
  void gather_buffer(ConstBuffer, MutableBuffer, int) override { read_board(); }
  void scatter_buffer(ConstBuffer, MutableBuffer, int) override { read_board(); }
  void reduce_scatter_buffer(ConstBuffer, MutableBuffer, ReduceOp) override { read_board(); }
  [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer, ReduceOp) override {
    read_board();
    return {.slot = 0};
  }
  [[nodiscard]] Request start_reduce_scatter_buffer(ConstBuffer, MutableBuffer, ReduceOp) override {
    return {.slot = 100};
  }
  [[nodiscard]] Request start_all_gather_buffer(ConstBuffer, MutableBuffer) override {
    return {.slot = 1};
  }
  [[nodiscard]] Request start_send_buffer(ConstBuffer, int) override {
    read_board();
    return {.slot = 2};
  }
  [[nodiscard]] Request start_receive_buffer(MutableBuffer, int) override { return {.slot = 3}; }
  [[nodiscard]] std::unique_ptr<Communicator> split(int, int) override {
    read_board();
    return nullptr;
  }
  /// Every request has ended.
  bool test(Request& request) override {
    request.slot = -1;
    return true;
  }
  void wait(Request& request) override {
    read_board();
    request.slot = -1;
  }
  void synchronize() override { read_board(); }

 private:
  void read_board() { seen = board_.read(); }
  Communicator& inner_;
  PhaseBoard& board_;
};

}  // namespace

BOOST_AUTO_TEST_CASE(every_collective_is_shown_while_it_runs) {
  const auto self = make_self_communicator();
  PhaseBoard board;
  BoardReader inner(*self, board);
  WatchedCommunicator comm(inner, board);
  std::vector<double> values(5);
  const std::span<double> all(values);
  const std::span<const double> mine(values);
  const auto shown = [&] { return inner.seen.waits_in; };

  comm.all_reduce(all);
  BOOST_TEST((shown() == CollectiveKind::all_reduce));
  BOOST_TEST(inner.seen.wait_count == 5);
  comm.broadcast(all);
  BOOST_TEST((shown() == CollectiveKind::broadcast));
  comm.all_gather(mine, all);
  BOOST_TEST((shown() == CollectiveKind::all_gather));
  comm.gather(mine, all);
  BOOST_TEST((shown() == CollectiveKind::gather));
  comm.scatter(mine, all);
  BOOST_TEST((shown() == CollectiveKind::scatter));
  comm.reduce_scatter(mine, all);
  BOOST_TEST((shown() == CollectiveKind::reduce_scatter));
  comm.synchronize();
  BOOST_TEST((shown() == CollectiveKind::synchronize));
  Request request = comm.start_all_reduce(all);
  BOOST_TEST((shown() == CollectiveKind::started_all_reduce));
  BOOST_TEST(inner.seen.bucket == 1);
  BOOST_TEST((board.read().waits_in == CollectiveKind::none));
  comm.wait(request);
  BOOST_TEST((shown() == CollectiveKind::started_all_reduce));
  BOOST_TEST(inner.seen.bucket == 1);
  Request gather = comm.start_all_gather(mine, all);
  Request scatter = comm.start_reduce_scatter(mine, all);
  comm.wait(gather);
  BOOST_TEST((shown() == CollectiveKind::started_all_gather));
  BOOST_TEST(inner.seen.bucket == 2);
  comm.wait(scatter);
  BOOST_TEST((shown() == CollectiveKind::started_reduce_scatter));
  BOOST_TEST(inner.seen.bucket == 3);
  static_cast<void>(comm.split(0, 0));
  BOOST_TEST((shown() == CollectiveKind::split));
  const std::uint64_t before = board.read().collectives;
  Request sends = comm.start_send(mine, 1);
  BOOST_TEST((shown() == CollectiveKind::send));
  BOOST_TEST(inner.seen.wait_count == 5);
  Request receives = comm.start_receive(all, 1);
  comm.wait(sends);
  BOOST_TEST((shown() == CollectiveKind::send));
  comm.wait(receives);
  BOOST_TEST((shown() == CollectiveKind::receive));
  // Other ranks have other messages.
  BOOST_TEST(board.read().collectives == before);
  BOOST_CHECK_THROW(comm.barrier(), Error);
  BOOST_TEST((shown() == CollectiveKind::barrier));
  BOOST_TEST((board.read().waits_in == CollectiveKind::none));
}

BOOST_AUTO_TEST_CASE(a_wait_shows_the_bucket_of_its_own_request) {
  const auto self = make_self_communicator();
  PhaseBoard board;
  BoardReader inner(*self, board);
  WatchedCommunicator comm(inner, board);
  std::vector<double> values(5);
  const std::span<double> all(values);
  board.begin_step(1);
  Request first = comm.start_all_reduce(all);
  Request second = comm.start_all_gather(std::span<const double>(values), all);
  Request third = comm.start_reduce_scatter(std::span<const double>(values), all);

  comm.wait(second);
  BOOST_TEST((inner.seen.waits_in == CollectiveKind::started_all_gather));
  BOOST_TEST(inner.seen.bucket == 2);
  comm.wait(first);
  BOOST_TEST((inner.seen.waits_in == CollectiveKind::started_all_reduce));
  BOOST_TEST(inner.seen.bucket == 1);
  board.begin_step(2);
  comm.wait(third);
  BOOST_TEST((inner.seen.waits_in == CollectiveKind::started_reduce_scatter));
  BOOST_TEST(inner.seen.bucket == 3);
}

BOOST_AUTO_TEST_CASE(a_request_that_is_done_is_not_awaited) {
  const auto self = make_self_communicator();
  PhaseBoard board;
  BoardReader inner(*self, board);
  WatchedCommunicator comm(inner, board);
  std::vector<double> values(5);
  board.begin_step(1);
  Request done;
  Request started = comm.start_all_reduce(std::span(values));

  comm.wait(done);
  BOOST_TEST((inner.seen.waits_in == CollectiveKind::none));
  comm.wait(started);
  BOOST_TEST(inner.seen.bucket == 1);
}

BOOST_AUTO_TEST_CASE(a_start_that_throws_is_no_wait) {
  class Refusing final : public ForwardingCommunicator {
   public:
    using ForwardingCommunicator::ForwardingCommunicator;
    [[nodiscard]] Request start_all_reduce_buffer(MutableBuffer, ReduceOp) override {
      fail(ExitStatus::internal, "refused");
    }
  };
  const auto self = make_self_communicator();
  Refusing refusing(*self);
  PhaseBoard board;
  WatchedCommunicator watched(refusing, board);
  std::vector<float> values(1);

  BOOST_CHECK_THROW(static_cast<void>(watched.start_all_reduce(std::span(values))), Error);

  BOOST_TEST((board.read().waits_in == CollectiveKind::none));
}

BOOST_AUTO_TEST_CASE(a_rank_whose_first_bucket_ended_before_its_wait_is_not_named) {
  const auto self = make_self_communicator();
  std::vector<watch::RankReport> reports;
  for (const int rank : {0, 1, 2}) {
    PhaseBoard board;
    BoardReader inner(*self, board);
    WatchedCommunicator comm(inner, board);
    std::vector<double> values(5);
    board.begin_step(1);
    Request first = comm.start_all_reduce(std::span(values));
    Request second = comm.start_reduce_scatter(std::span<const double>(values), std::span(values));
    if (rank != 2 || !comm.test(first)) comm.wait(first);

    comm.wait(second);

    reports.push_back({.reading = inner.seen,
                       .idle = 40,
                       .rank = rank,
                       .state = watch::RankReport::State::running});
  }
  const std::vector<std::string> names{"rank 0", "rank 1", "rank 2"};
  const std::vector<int> parents{-1, 0, 0};

  const auto text = watch::judge(reports, names, {.limit = 10, .parents = parents});

  BOOST_TEST_REQUIRE(text.has_value());
  BOOST_TEST(text->find("all ranks wait for each other") != std::string::npos, *text);
}
