#include "lockstep/doctor/facts.hpp"

#include <boost/test/unit_test.hpp>

#include <map>

using namespace lockstep::doctor;

namespace {

using Launcher = LaunchFacts::Launcher;

LaunchFacts read(const std::map<std::string, std::string>& environment) {
  return read_launch([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

BOOST_AUTO_TEST_CASE(without_a_launcher_there_are_no_facts) {
  const LaunchFacts facts = read({});

  BOOST_TEST((facts.launcher == Launcher::none));
  BOOST_TEST(!facts.started);
  BOOST_TEST(!facts.allocated);
}

BOOST_AUTO_TEST_CASE(the_variables_of_an_srun_step_are_read) {
  const LaunchFacts facts = read({{"SLURM_STEP_ID", "0"},
                                  {"SLURM_STEP_NUM_TASKS", "4"},
                                  {"SLURM_NTASKS", "8"},
                                  {"SLURM_PROCID", "3"},
                                  {"SLURM_LOCALID", "1"},
                                  {"SLURMD_NODENAME", "node2"}});

  BOOST_TEST((facts.launcher == Launcher::srun));
  BOOST_TEST(facts.started.value() == 4);
  BOOST_TEST(facts.process == 3);
  BOOST_TEST(facts.local_process == 1);
  BOOST_TEST(facts.node == "node2");
}

BOOST_AUTO_TEST_CASE(srun_with_pmi2_is_srun) {
  const LaunchFacts facts =
      read({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "4"}});

  BOOST_TEST((facts.launcher == Launcher::srun));
}

BOOST_AUTO_TEST_CASE(mpirun_takes_precedence_over_the_step_of_its_daemon) {
  const LaunchFacts facts = read({{"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_RANK", "3"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"SLURM_STEP_ID", "0"},
                                  {"SLURM_STEP_NUM_TASKS", "1"},
                                  {"SLURM_NTASKS", "1"}});

  BOOST_TEST((facts.launcher == Launcher::mpirun));
  BOOST_TEST(facts.started.value() == 4);
  BOOST_TEST(!facts.allocated);
  BOOST_TEST(facts.process == 3);
}

BOOST_AUTO_TEST_CASE(mpirun_in_a_job_script_reads_the_allocation) {
  const LaunchFacts facts =
      read({{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});

  BOOST_TEST(facts.allocated.value() == 4);
}

BOOST_AUTO_TEST_CASE(hydra_is_a_launcher_too) {
  const LaunchFacts facts = read({{"PMI_SIZE", "3"}, {"PMI_RANK", "2"}, {"MPI_LOCALRANKID", "2"}});

  BOOST_TEST((facts.launcher == Launcher::mpirun));
  BOOST_TEST(facts.started.value() == 3);
  BOOST_TEST(facts.process == 2);
}

BOOST_AUTO_TEST_CASE(a_job_script_itself_has_no_launcher) {
  const LaunchFacts facts = read({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}});

  BOOST_TEST((facts.launcher == Launcher::none));
  BOOST_TEST(facts.allocated.value() == 4);
}

BOOST_AUTO_TEST_CASE(values_that_are_no_numbers_are_ignored) {
  BOOST_TEST(!read({{"SLURM_NTASKS", "4x"}}).allocated);
  BOOST_TEST(!read({{"SLURM_NTASKS", ""}}).allocated);
}
