#include <boost/test/unit_test.hpp>

#include "lockstep/comm/all_reduce_choice.hpp"

using namespace lockstep;

namespace {

std::string chosen(const AllReduceFacts& facts) {
  return std::string(choose_all_reduce(facts).value_or("nothing"));
}

}  // namespace

BOOST_AUTO_TEST_CASE(powers_of_two_use_rabenseifner_and_other_sizes_a_ring) {
  for (const int ranks : {2, 4, 8, 64, 4096}) {
    BOOST_TEST(chosen({.ranks = ranks, .parameter = "ignore"}) == "rabenseifner");
  }
  for (const int ranks : {3, 5, 6, 7, 12, 96, 4095}) {
    BOOST_TEST(chosen({.ranks = ranks, .parameter = "ignore"}) == "ring");
  }
}

BOOST_AUTO_TEST_CASE(a_single_rank_sets_nothing) {
  BOOST_TEST(chosen({.ranks = 1, .parameter = "ignore"}) == "nothing");
}

BOOST_AUTO_TEST_CASE(an_mpi_without_the_parameter_keeps_its_own_choice) {
  BOOST_TEST(chosen({.ranks = 6}) == "nothing");
}

BOOST_AUTO_TEST_CASE(a_users_setting_is_kept) {
  // Set in a parameter file: only the value shows it.
  BOOST_TEST(chosen({.ranks = 6, .parameter = "binomial"}) == "nothing");
  // Set in the environment, even if the value requests Open MPI's default.
  BOOST_TEST(chosen({.ranks = 6, .parameter = "ignore", .in_environment = true}) == "nothing");
}

BOOST_AUTO_TEST_CASE(an_mpi_is_named_with_its_version) {
  BOOST_TEST(mpi_name("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4") ==
             "Open MPI 4.1.4");
  BOOST_TEST(mpi_name("MPICH Version:\t4.0.2\nMPICH Release date:\t...") == "MPICH 4.0.2");
  BOOST_TEST(mpi_name("MPICH Version:      4.2.1\nMPICH Release date: ...") == "MPICH 4.2.1");
  BOOST_TEST(mpi_name("Some MPI 7") == "Some MPI 7");
  BOOST_TEST(mpi_name("") == "");
}
