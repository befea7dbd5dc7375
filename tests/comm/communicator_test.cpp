#include <boost/test/unit_test.hpp>

#include "comm/allocation_count.hpp"
#include "comm/communicator_suite.hpp"
#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/comm/self_communicator.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

using namespace lockstep;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

std::vector<float> irrational(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i + 1)) * std::pow(10.0F, static_cast<float>(rank * 2));
  }
  return values;
}

/// Whether all ranks hold the same bits as rank 0.
bool same_bits_everywhere(Communicator& comm, const std::vector<float>& values) {
  std::vector<std::uint8_t> mine(values.size() * sizeof(float));
  std::memcpy(mine.data(), values.data(), mine.size());
  std::vector<std::uint8_t> first = mine;
  comm.broadcast(std::span(first), 0);
  return comm.all_reduce_value<std::int32_t>(first == mine ? 1 : 0, ReduceOp::min) == 1;
}

}  // namespace

BOOST_AUTO_TEST_CASE(the_self_communicator_passes_the_suite) {
  const auto comm = make_self_communicator();

  BOOST_TEST(comm->rank() == 0);
  BOOST_TEST(comm->size() == 1);
  test::check_communicator(*comm, {0, 1, 3, 1000, 100003});
}

BOOST_AUTO_TEST_CASE(the_mpi_communicator_passes_the_suite) {
  const auto comm = make_mpi_communicator();

  test::check_communicator(*comm, {0, 1, 2, 3, 17, 1000, 100003});
}

BOOST_AUTO_TEST_CASE(counts_above_the_limit_of_one_call_are_split) {
  const auto comm = make_mpi_communicator({.largest_piece = 7});

  test::check_communicator(*comm, {0, 1, 6, 7, 8, 14, 100});
}

BOOST_AUTO_TEST_CASE(reductions_give_the_same_bits_on_every_rank) {
  const auto comm = make_mpi_communicator();
  for (const std::size_t count : {1UL, 3UL, 1000UL, 100003UL}) {
    auto values = irrational(comm->rank(), count);
    auto started = values;
    std::vector<double> exact(count, 0.0);
    for (int rank = 0; rank < comm->size(); ++rank) {
      const auto theirs = irrational(rank, count);
      for (std::size_t i = 0; i < count; ++i) exact[i] += static_cast<double>(theirs[i]);
    }

    comm->all_reduce(std::span(values));
    Request request = comm->start_all_reduce(std::span(started));
    comm->wait(request);

    BOOST_TEST(same_bits_everywhere(*comm, values));
    BOOST_TEST(same_bits_everywhere(*comm, started));
    // Three roundings at most, each half an ulp of the largest partial sum, below 10^(2 ranks).
    const double tolerance = 4 * std::pow(100.0, comm->size() - 1) * 0x1p-24;
    bool close = true;
    for (std::size_t i = 0; i < count; ++i) {
      close = close && std::abs(static_cast<double>(values[i]) - exact[i]) <= tolerance &&
              std::abs(static_cast<double>(started[i]) - exact[i]) <= tolerance;
    }
    BOOST_TEST(close);
  }
}

BOOST_AUTO_TEST_CASE(not_a_number_and_infinity_reach_every_rank) {
  const auto comm = make_mpi_communicator();
  const bool last = comm->rank() == comm->size() - 1;
  std::vector<float> values{last ? std::numeric_limits<float>::quiet_NaN() : 1.0F,
                            last ? std::numeric_limits<float>::infinity() : 1.0F};

  comm->all_reduce(std::span(values));

  BOOST_TEST(std::isnan(values[0]));
  BOOST_TEST(std::isinf(values[1]));
}

BOOST_AUTO_TEST_CASE(several_requests_in_flight_complete_in_any_order) {
  const auto comm = make_mpi_communicator();
  const auto ranks = static_cast<double>(comm->size());
  constexpr std::size_t many = 9;
  std::vector<std::vector<double>> buffers;
  for (std::size_t i = 0; i < many; ++i) buffers.emplace_back(i * 5003, static_cast<double>(i));

  std::vector<Request> requests;
  for (auto& buffer : buffers) requests.push_back(comm->start_all_reduce(std::span(buffer)));
  for (std::size_t i = many; i-- > 1;) {
    if (i % 2 == 0) comm->wait(requests[i]);
  }
  // Testing one request also progresses the others: none is waited for.
  while (!comm->test(requests[1])) {
  }
  for (std::size_t i = 0; i < many; ++i) {
    while (!comm->test(requests[i])) {
    }
  }

  for (std::size_t i = 0; i < many; ++i) {
    BOOST_TEST(requests[i].done());
    BOOST_TEST((buffers[i] == std::vector<double>(i * 5003, static_cast<double>(i) * ranks)));
  }
}

BOOST_AUTO_TEST_CASE(requests_of_all_kinds_in_flight_complete_in_any_order) {
  for (const std::size_t largest_piece : {1UL << 28, 100UL}) {
    const auto comm = make_mpi_communicator({.largest_piece = largest_piece});
    const auto ranks = static_cast<std::size_t>(comm->size());
    const auto total = static_cast<float>(ranks);
    constexpr std::size_t many = 5;
    struct Buffers {
      std::vector<float> reduced, scattered, mine, gathered;
    };
    std::vector<Buffers> buffers;
    std::vector<Request> requests;
    buffers.reserve(many);
    requests.reserve(3 * many);
    for (std::size_t i = 0; i < many; ++i) {
      const std::size_t count = 1 + i * 307;
      const auto value = static_cast<float>(i + 1);
      buffers.push_back({.reduced = std::vector(count, value),
                         .scattered = std::vector(count * ranks, value),
                         .mine = std::vector(count, 0.0F),
                         .gathered = std::vector(count * ranks, 0.0F)});
      auto& [reduced, scattered, mine, gathered] = buffers.back();
      const auto own =
          std::span(gathered).subspan(count * static_cast<std::size_t>(comm->rank()), count);
      std::ranges::fill(own, value);
      requests.push_back(
          comm->start_reduce_scatter(std::span<const float>(scattered), std::span(mine)));
      requests.push_back(comm->start_all_reduce(std::span(reduced)));
      requests.push_back(comm->start_all_gather(std::span<const float>(own), std::span(gathered)));
    }
    for (std::size_t i = requests.size(); i-- > 0;) {
      if (i % 2 == 0) comm->wait(requests[i]);
    }
    for (Request& request : requests) {
      while (!comm->test(request)) {
      }
    }

    for (std::size_t i = 0; i < many; ++i) {
      const std::size_t count = 1 + i * 307;
      const auto value = static_cast<float>(i + 1);
      BOOST_TEST((buffers[i].reduced == std::vector(count, value * total)));
      BOOST_TEST((buffers[i].scattered == std::vector(count * ranks, value)));
      BOOST_TEST((buffers[i].mine == std::vector(count, value * total)));
      BOOST_TEST((buffers[i].gathered == std::vector(count * ranks, value)));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_request_that_is_done_stays_done) {
  for (const auto& comm : {make_self_communicator(), make_mpi_communicator()}) {
    std::vector<float> values(10, 1.0F);
    Request request = comm->start_all_reduce(std::span(values));

    comm->wait(request);
    comm->wait(request);

    BOOST_TEST(comm->test(request));
    BOOST_TEST(values[9] == static_cast<float>(comm->size()));
  }
}

BOOST_AUTO_TEST_CASE(steps_after_the_first_allocate_nothing) {
  const auto comm = make_mpi_communicator({.largest_piece = 300});
  const auto ranks = static_cast<std::size_t>(comm->size());
  std::vector<float> values(4000, 1.0F);
  std::vector<float> all(300 * ranks, 1.0F);
  std::vector<float> mine(300);
  std::vector<float> gathered(300 * ranks);
  const std::span<const float> own =
      std::span(gathered).subspan(300 * static_cast<std::size_t>(comm->rank()), 300);
  std::vector<Request> requests(6);
  const auto step = [&] {
    for (std::size_t i = 0; i < 4; ++i) {
      requests[i] = comm->start_all_reduce(std::span(values).subspan(i * 1000, 1000));
    }
    requests[4] = comm->start_reduce_scatter(std::span<const float>(all), std::span(mine));
    requests[5] = comm->start_all_gather(own, std::span(gathered));
    for (Request& request : requests) comm->wait(request);
  };
  step();

  const long before = test::allocation_count();
  for (int i = 0; i < 50; ++i) step();

  BOOST_TEST(test::allocation_count() - before == 0);
}

BOOST_AUTO_TEST_CASE(the_error_of_a_failed_call_names_call_reason_rank_and_host) {
  const auto comm = make_mpi_communicator();
  std::vector<float> values(3);
  char host[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(host, &length);

  BOOST_CHECK_EXCEPTION(comm->broadcast(std::span(values), 99), Error, [&](const Error& error) {
    const std::string text = error.what();
    return error.status() == ExitStatus::internal && text.find("MPI_Bcast") != std::string::npos &&
           (text.find("MPI_ERR_ROOT") != std::string::npos ||  // Open MPI's text, and MPICH's
            text.find("Invalid root") != std::string::npos) &&
           text.find("rank " + std::to_string(comm->rank())) != std::string::npos &&
           text.find(host) != std::string::npos;
  });

  BOOST_TEST(comm->all_reduce_value<std::int64_t>(1) == comm->size());
}

BOOST_AUTO_TEST_CASE(a_message_is_received_after_a_collective_that_it_was_sent_before) {
  const auto comm = make_mpi_communicator();
  const bool sends = comm->rank() == 0 && comm->size() > 1;
  const bool receives = comm->rank() == 1;
  std::vector<float> message(1 << 18, sends ? 3.0F : 0.0F);
  Request sent;
  if (sends) sent = comm->start_send(std::span<const float>(message), 1);

  std::vector<double> sums(1000, 1.0);
  comm->all_reduce(std::span(sums));
  if (receives) comm->receive(std::span(message), 0);
  comm->wait(sent);

  BOOST_TEST(sums[999] == comm->size());
  if (receives) BOOST_TEST((message == std::vector<float>(1 << 18, 3.0F)));
}

BOOST_AUTO_TEST_CASE(messages_of_two_communicators_do_not_mix) {
  const auto one = make_mpi_communicator();
  const auto other = make_mpi_communicator();
  std::vector<float> a(1000, 1.0F);
  std::vector<float> b(1000, 2.0F);

  // Odd ranks start them in the reverse order, which would be an error within one communicator.
  std::vector<Request> requests(2);
  if (one->rank() % 2 == 0) {
    requests[0] = one->start_all_reduce(std::span(a));
    requests[1] = other->start_all_reduce(std::span(b));
  } else {
    requests[1] = other->start_all_reduce(std::span(b));
    requests[0] = one->start_all_reduce(std::span(a));
  }
  one->wait(requests[0]);
  other->wait(requests[1]);

  BOOST_TEST(a[999] == static_cast<float>(one->size()));
  BOOST_TEST(b[999] == 2 * static_cast<float>(one->size()));
}

BOOST_AUTO_TEST_CASE(a_message_that_is_shorter_than_its_receive_is_an_error) {
  const auto comm = make_mpi_communicator();
  if (comm->size() == 1) return;
  std::vector<float> values(5, 1.0F);
  for (const bool by_test : {false, true}) {
    if (comm->rank() == 0) {
      comm->send(std::span<const float>(values).first(3), 1);
    } else if (comm->rank() == 1) {
      Request request = comm->start_receive(std::span(values), 0);
      const auto end = [&] {
        if (!by_test) return comm->wait(request);
        while (!comm->test(request)) continue;
      };
      BOOST_CHECK_EXCEPTION(end(), Error, [](const Error& error) {
        return error.status() == ExitStatus::internal &&
               std::string_view(error.what()).find("3 values instead of 5") !=
                   std::string_view::npos;
      });
    }
  }
}
