#include "comm/communicator_suite.hpp"
#include "comm/suite_values.hpp"
#include "lockstep/core/error.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <random>

namespace lockstep::test {
namespace {

/// All ranks know each message.
struct Message {
  int from = 0;
  int to = 0;
  std::size_t count = 0;
};

/// The same on all ranks. A pair may have several, in both directions.
std::vector<Message> random_messages(int ranks, const std::vector<std::size_t>& counts,
                                     std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t limit) { return random() % limit; };
  std::vector<Message> messages(4 * static_cast<std::size_t>(ranks));
  for (Message& message : messages) {
    message.from = static_cast<int>(below(static_cast<std::size_t>(ranks)));
    const auto distance = static_cast<int>(1 + below(static_cast<std::size_t>(ranks - 1)));
    message.to = (message.from + distance) % ranks;
    message.count = counts[below(counts.size())];
  }
  return messages;
}

/// Starts this rank's messages in their order, and a collective while they are in flight; ends them
/// in another order on each rank.
template <typename T>
void exchange(Communicator& comm, const std::vector<Message>& messages) {
  struct Started {
    std::size_t number = 0;
    std::vector<T> values;
    Request request;
  };
  std::vector<Started> started;
  started.reserve(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto [from, to, count] = messages[i];
    if (from == comm.rank()) {
      Started& sent = started.emplace_back(i, values_of<T>(static_cast<int>(i), count));
      sent.request = comm.start_send(std::span<const T>(sent.values), to);
    } else if (to == comm.rank()) {
      Started& received = started.emplace_back(i, std::vector<T>(count, T(99.0F)));
      received.request = comm.start_receive(std::span(received.values), from);
    }
  }
  auto sums = values_of<float>(comm.rank(), 100);
  Request sum = comm.start_all_reduce(std::span(sums));
  std::mt19937 random(static_cast<std::uint32_t>(comm.rank()));
  std::ranges::shuffle(started, random);
  for (Started& message : started) {
    if (message.number % 2 == 0) {
      comm.wait(message.request);
    } else {
      while (!comm.test(message.request)) {
      }
    }
    BOOST_TEST(message.request.done());
  }
  comm.wait(sum);
  comm.synchronize();
  for (const Started& message : started) {
    const int number = static_cast<int>(message.number);
    BOOST_TEST((message.values == values_of<T>(number, messages[message.number].count)));
  }
  BOOST_TEST((sums == reduced<float>(comm.size(), 100, ReduceOp::sum)));
}

template <typename T>
void check_messages_of(Communicator& comm, const std::vector<std::size_t>& counts) {
  const auto seed = static_cast<std::uint32_t>(element_type<T>());
  BOOST_TEST_CONTEXT("messages of element type " << seed) {
    exchange<T>(comm, random_messages(comm.size(), counts, seed));
  }
}

/// Every rank passes what it has received on, until all have come back.
void check_ring(Communicator& comm, std::size_t count) {
  const int ranks = comm.size();
  const int next = (comm.rank() + 1) % ranks;
  const int previous = (comm.rank() + ranks - 1) % ranks;
  auto values = values_of<float>(comm.rank(), count);
  std::vector<float> received(count);
  for (int hop = 0; hop < ranks; ++hop) {
    Request sends = comm.start_send(std::span<const float>(values), next);
    Request receives = comm.start_receive(std::span(received), previous);
    comm.wait(sends);
    comm.wait(receives);
    comm.synchronize();
    std::swap(values, received);
  }
  BOOST_TEST((values == values_of<float>(comm.rank(), count)));
}

/// The blocking calls: from rank to rank, as values go through a pipeline.
void check_chain(Communicator& comm, std::size_t count) {
  std::vector<double> values(count);
  if (comm.rank() > 0) comm.receive(std::span(values), comm.rank() - 1);
  comm.synchronize();
  for (double& value : values) value += comm.rank() + 1;
  if (comm.rank() + 1 < comm.size()) comm.send(std::span<const double>(values), comm.rank() + 1);
  comm.synchronize();
  const int sum = (comm.rank() + 1) * (comm.rank() + 2) / 2;
  BOOST_TEST((values == std::vector<double>(count, sum)));
}

/// A message holds the owner of its buffer until it is done, and no longer.
void check_owners(Communicator& comm) {
  const int other = comm.rank() ^ 1;
  if (other >= comm.size()) return;
  std::vector<float> sent(5000, 1);
  std::vector<float> received(5000);
  auto owner = std::make_shared<int>();
  const std::weak_ptr<int> watched = owner;
  std::array requests{comm.start_send_buffer(buffer_of(std::span<const float>(sent), owner), other),
                      comm.start_receive_buffer(buffer_of(std::span(received), owner), other)};
  const bool in_flight = !requests[0].done() || !requests[1].done();
  owner.reset();
  BOOST_TEST(watched.expired() == !in_flight);
  for (Request& request : requests) comm.wait(request);
  comm.synchronize();
  BOOST_TEST(watched.expired());
}

/// Ranks that send to no other rank, and messages to ranks that do not exist.
void check_refusals(Communicator& comm) {
  std::vector<float> values(3);
  for (const int peer : {comm.rank(), -1, comm.size()}) {
    BOOST_CHECK_THROW(comm.send(std::span<const float>(values), peer), Error);
    BOOST_CHECK_THROW(comm.receive(std::span(values), peer), Error);
  }
}

/// The ranks here of all ranks of `part`, a split of `comm`.
std::vector<int> ranks_in(Communicator& comm, Communicator& part) {
  std::vector<int> ranks(static_cast<std::size_t>(part.size()));
  const int mine = comm.rank();
  part.all_gather(std::span<const int>(&mine, 1), std::span(ranks));
  return ranks;
}

/// Messages and collectives of a communicator and its parts at once.
void check_beside(Communicator& comm, Communicator& part) {
  auto sums = values_of<float>(comm.rank(), 1000);
  auto of_part = values_of<float>(part.rank(), 777);
  Request whole = comm.start_all_reduce(std::span(sums));
  if (part.size() > 1) exchange<std::int32_t>(part, random_messages(part.size(), {1, 501}, 3));
  Request within = part.start_all_reduce(std::span(of_part));
  if (comm.size() > 1) exchange<std::int64_t>(comm, random_messages(comm.size(), {1, 301}, 5));
  part.wait(within);
  comm.wait(whole);
  comm.synchronize();
  BOOST_TEST((sums == reduced<float>(comm.size(), 1000, ReduceOp::sum)));
  BOOST_TEST((of_part == reduced<float>(part.size(), 777, ReduceOp::sum)));
}

}  // namespace

void check_messages(Communicator& comm, const std::vector<std::size_t>& counts) {
  check_refusals(comm);
  if (comm.size() == 1) return;
  check_messages_of<float>(comm, counts);
  check_messages_of<double>(comm, counts);
  check_messages_of<std::int32_t>(comm, counts);
  check_messages_of<std::int64_t>(comm, counts);
  check_messages_of<std::uint8_t>(comm, counts);
  check_messages_of<std::uint64_t>(comm, counts);
  check_messages_of<Bfloat16>(comm, counts);
  check_messages_of<Float16>(comm, counts);
  // Above what MPI sends at once, and some MiB.
  check_messages_of<float>(comm, {16385, (std::size_t{1} << 20) + 3});
  check_ring(comm, 1001);
  check_ring(comm, 100003);
  check_chain(comm, 50001);
  check_owners(comm);
}

void check_splits(Communicator& comm) {
  // Unequal colors, in reverse order.
  const int color = comm.rank() % 3 == 0 ? 7 : 0;
  auto part = comm.split(color, -comm.rank());
  std::vector<int> expected;
  for (int rank = comm.size() - 1; rank >= 0; --rank) {
    if ((rank % 3 == 0 ? 7 : 0) == color) expected.push_back(rank);
  }
  BOOST_TEST(part->size() == static_cast<int>(expected.size()));
  BOOST_TEST(expected[static_cast<std::size_t>(part->rank())] == comm.rank());
  BOOST_TEST((ranks_in(comm, *part) == expected));
  check_beside(comm, *part);

  // A split of the split, which outlives it, in the order of the ranks.
  const auto last = part->split(part->rank() % 2, 0);
  std::vector<int> of_last;
  for (std::size_t i = static_cast<std::size_t>(part->rank() % 2); i < expected.size(); i += 2) {
    of_last.push_back(expected[i]);
  }
  part.reset();
  BOOST_TEST((ranks_in(comm, *last) == of_last));
  check_beside(comm, *last);

  const auto alone = comm.split(comm.rank(), 0);
  BOOST_TEST(alone->size() == 1);
  check_beside(comm, *alone);
}

}  // namespace lockstep::test
