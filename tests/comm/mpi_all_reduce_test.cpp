#include <boost/test/unit_test.hpp>

#include "comm/mpi_fixture.hpp"
#include "lockstep/comm/mpi_all_reduce.hpp"
#include "lockstep/comm/mpi_communicator.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace lockstep;

BOOST_TEST_GLOBAL_FIXTURE(MpiFixture);

namespace {

constexpr const char* variable = "OMPI_MCA_coll_libnbc_iallreduce_algorithm";

bool is_open_mpi() {
  return mpi_all_reduce().starts_with("Open MPI");
}

/// Values whose sum depends on the order of the ranks.
std::vector<float> values_of(int rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = std::sin(static_cast<float>(i + 1)) * std::pow(10.0F, static_cast<float>(rank * 2));
  }
  return values;
}

template <typename T>
std::vector<T> cast(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

template <typename T>
bool same_bits(const std::vector<T>& one, const std::vector<T>& other) {
  return std::memcmp(one.data(), other.data(), one.size() * sizeof(T)) == 0;
}

/// Checks that the sums are close to the exact ones, and that all ranks and a repetition give the
/// same bits.
template <typename T>
void check_sums(Communicator& comm, std::size_t count, double tolerance) {
  std::vector<T> first;
  for (int repetition = 0; repetition < 2; ++repetition) {
    std::vector<T> sums = cast<T>(values_of(comm.rank(), count));
    Request request = comm.start_all_reduce(std::span<T>(sums));
    comm.wait(request);

    double error = 0;
    for (std::size_t i = 0; i < count; ++i) {
      double exact = 0;
      double magnitude = 0;
      for (int rank = 0; rank < comm.size(); ++rank) {
        const auto value =
            static_cast<double>(static_cast<float>(T(values_of(rank, i + 1).back())));
        exact += value;
        magnitude += std::abs(value);
      }
      error = std::max(
          error, std::abs(static_cast<double>(static_cast<float>(sums[i])) - exact) / magnitude);
    }
    BOOST_TEST(error <= tolerance * comm.size());
    std::vector<T> of_rank_0 = sums;
    comm.broadcast(std::span<std::uint8_t>(reinterpret_cast<std::uint8_t*>(of_rank_0.data()),
                                           of_rank_0.size() * sizeof(T)));
    BOOST_TEST(same_bits(sums, of_rank_0));
    if (repetition == 0) first = sums;
    BOOST_TEST(same_bits(sums, first));
  }
}

}  // namespace

// MPI reads its variables only when it starts. Here the variable only marks a choice by the user.
BOOST_AUTO_TEST_CASE(a_setting_in_the_environment_is_kept) {
  if (std::getenv(variable) != nullptr) return;
  const std::string before = mpi_all_reduce();
  ::setenv(variable, "ignore", 1);

  set_mpi_all_reduce();

  ::unsetenv(variable);
  BOOST_TEST(mpi_all_reduce() == before);
}

BOOST_AUTO_TEST_CASE(open_mpi_uses_the_algorithm_for_the_number_of_ranks) {
  const auto comm = make_mpi_communicator();
  if (std::getenv(variable) != nullptr || !is_open_mpi()) return;

  set_mpi_all_reduce();

  const std::string found = mpi_all_reduce();
  const int size = comm->size();
  const bool is_power_of_two = (size & (size - 1)) == 0;
  BOOST_TEST_CONTEXT(found) {
    BOOST_TEST(found.ends_with(", rabenseifner") == (size > 1 && is_power_of_two));
    BOOST_TEST(found.ends_with(", ring") == !is_power_of_two);
  }
}

BOOST_AUTO_TEST_CASE(sums_are_correct_and_bitwise_equal_on_all_ranks_each_time) {
  const auto comm = make_mpi_communicator();
  set_mpi_all_reduce();

  for (const std::size_t count : {1U, 2U, 3U, 5U, 1000U}) {
    BOOST_TEST_CONTEXT(count) {
      check_sums<float>(*comm, count, 0x1p-23);
      check_sums<Bfloat16>(*comm, count, 0x1p-7);
    }
  }
}
