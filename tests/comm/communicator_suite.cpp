#include "comm/communicator_suite.hpp"

#include "comm/suite_values.hpp"
#include "lockstep/comm/collective.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

namespace lockstep::test {
namespace {

constexpr std::array operators{ReduceOp::sum, ReduceOp::min, ReduceOp::max};

/// The values of all ranks, in rank order.
template <typename T>
std::vector<T> values_of_all(int ranks, std::size_t count) {
  std::vector<T> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto values = values_of<T>(rank, count);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

template <typename T>
void check_reductions(Communicator& comm, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (const ReduceOp op : operators) {
    auto values = values_of<T>(comm.rank(), count);
    comm.all_reduce(std::span(values), op);
    BOOST_TEST((values == reduced<T>(comm.size(), count, op)));

    auto started = values_of<T>(comm.rank(), count);
    Request request = comm.start_all_reduce(std::span(started), op);
    comm.wait(request);
    BOOST_TEST(request.done());
    BOOST_TEST((started == reduced<T>(comm.size(), count, op)));

    const auto all = values_of<T>(comm.rank(), count * ranks);
    const auto own =
        reduced<T>(comm.size(), count, op, count * static_cast<std::size_t>(comm.rank()));
    std::vector<T> mine(count);
    comm.reduce_scatter(std::span<const T>(all), std::span(mine), op);
    BOOST_TEST((mine == own));

    std::vector<T> later(count);
    request = comm.start_reduce_scatter(std::span<const T>(all), std::span(later), op);
    comm.wait(request);
    BOOST_TEST(request.done());
    BOOST_TEST((later == own));
    BOOST_TEST((all == values_of<T>(comm.rank(), count * ranks)));
  }
}

template <typename T>
void check_moves(Communicator& comm, std::size_t count) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const auto mine = values_of<T>(comm.rank(), count);
  const auto of_all = values_of_all<T>(comm.size(), count);
  const std::vector<T> untouched(count * ranks, T(99.0F));

  auto all = untouched;
  comm.all_gather(std::span<const T>(mine), std::span(all));
  BOOST_TEST((all == of_all));
  all = untouched;
  Request request = comm.start_all_gather(std::span<const T>(mine), std::span(all));
  comm.wait(request);
  BOOST_TEST(request.done());
  BOOST_TEST((all == of_all));

  // In place: each rank's values are already in its block of the result.
  all = untouched;
  const auto own = std::span(all).subspan(count * static_cast<std::size_t>(comm.rank()), count);
  std::ranges::copy(mine, own.begin());
  auto started = all;
  comm.all_gather(std::span<const T>(own), std::span(all));
  BOOST_TEST((all == of_all));
  const auto its_own =
      std::span(started).subspan(count * static_cast<std::size_t>(comm.rank()), count);
  request = comm.start_all_gather(std::span<const T>(its_own), std::span(started));
  comm.wait(request);
  BOOST_TEST((started == of_all));

  for (int root = 0; root < comm.size(); ++root) {
    const bool here = comm.rank() == root;
    auto sent = mine;
    comm.broadcast(std::span(sent), root);
    BOOST_TEST((sent == values_of<T>(root, count)));

    all = untouched;
    comm.gather(std::span<const T>(mine), std::span(all), root);
    BOOST_TEST((all == (here ? of_all : untouched)));

    const auto source = here ? of_all : untouched;
    std::vector<T> received(count);
    comm.scatter(std::span<const T>(source), std::span(received), root);
    BOOST_TEST((received == mine));
  }
}

template <typename T>
void check_type(Communicator& comm, const std::vector<std::size_t>& counts) {
  for (const std::size_t count : counts) {
    BOOST_TEST_CONTEXT("count " << count << ", element type "
                                << static_cast<int>(element_type<T>())) {
      check_reductions<T>(comm, count);
      check_moves<T>(comm, count);
      comm.barrier();
    }
  }
}

/// A request holds the owners of its buffers until it is done, and no longer.
void check_ownership(Communicator& comm, std::size_t count) {
  std::vector<float> mine(count, 1);
  std::vector<float> all(count * static_cast<std::size_t>(comm.size()), 1);
  const std::span<const float> from_mine(mine);
  const std::span<const float> from_all(all);
  for (const CollectiveKind kind :
       {CollectiveKind::started_all_reduce, CollectiveKind::started_reduce_scatter,
        CollectiveKind::started_all_gather}) {
    auto owner = std::make_shared<int>();
    const std::weak_ptr<int> watched = owner;
    const auto start = [&] {
      switch (kind) {
        case CollectiveKind::started_reduce_scatter:
          return comm.start_reduce_scatter_buffer(buffer_of(from_all, owner),
                                                  buffer_of(std::span(mine), owner), ReduceOp::sum);
        case CollectiveKind::started_all_gather:
          return comm.start_all_gather_buffer(buffer_of(from_mine, owner),
                                              buffer_of(std::span(all), owner));
        default:
          return comm.start_all_reduce_buffer(buffer_of(std::span(mine), owner), ReduceOp::sum);
      }
    };
    Request request = start();
    const bool in_flight = !request.done();
    owner.reset();
    BOOST_TEST(watched.expired() == !in_flight);
    comm.wait(request);
    comm.synchronize();
    BOOST_TEST(watched.expired());
  }
}

}  // namespace

void check_communicator(Communicator& comm, const std::vector<std::size_t>& counts) {
  check_type<float>(comm, counts);
  check_type<double>(comm, counts);
  check_type<std::int32_t>(comm, counts);
  check_type<std::int64_t>(comm, counts);
  check_type<std::uint8_t>(comm, counts);
  check_type<std::uint64_t>(comm, counts);
  check_type<Bfloat16>(comm, counts);
  check_type<Float16>(comm, counts);
  check_ownership(comm, counts.back());
  check_messages(comm, counts);
  check_splits(comm);
}

void check_many_requests(Communicator& comm) {
  const auto ranks = static_cast<float>(comm.size());
  constexpr std::size_t many = 150;
  std::vector<std::vector<float>> buffers;
  std::vector<std::int64_t> counts(many);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < many; ++i) buffers.emplace_back(1 + i * 37, static_cast<float>(i));
  for (std::size_t i = 0; i < many; ++i) {
    requests.push_back(comm.start_all_reduce(std::span(buffers[i])));
    // MPI reduces integers; its requests alternate with those of this communicator.
    counts[i] = static_cast<std::int64_t>(i);
    requests.push_back(comm.start_all_reduce(std::span(&counts[i], 1)));
  }
  for (std::size_t i = requests.size(); i-- > 0;) {
    if (i % 3 == 0) comm.wait(requests[i]);
  }
  for (Request& request : requests) {
    while (!comm.test(request)) {
    }
  }
  for (std::size_t i = 0; i < many; ++i) {
    BOOST_TEST((buffers[i] == std::vector(1 + i * 37, static_cast<float>(i) * ranks)));
    BOOST_TEST(counts[i] == static_cast<std::int64_t>(i) * comm.size());
  }
}

void check_requests_of_several(Communicator& one, Communicator& other, Communicator& third) {
  const auto ranks = static_cast<float>(one.size());
  std::vector<float> a(100000, 1.0F);
  std::vector<float> b(100000, 2.0F);
  std::vector<double> c(100000, 3.0);
  std::vector<Request> requests{one.start_all_reduce(std::span(a)),
                                other.start_all_reduce(std::span(b)),
                                third.start_all_reduce(std::span(c))};
  const std::vector<Communicator*> comms{&one, &other, &third};
  // Each rank waits in a different order.
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t at = (i + static_cast<std::size_t>(one.rank())) % 3;
    comms[at]->wait(requests[at]);
  }
  BOOST_TEST((a == std::vector(100000, ranks)));
  BOOST_TEST((b == std::vector(100000, 2 * ranks)));
  BOOST_TEST((c == std::vector(100000, 3.0 * static_cast<double>(ranks))));
}

}  // namespace lockstep::test
