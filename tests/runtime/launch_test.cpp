#include "lockstep/runtime/launch.hpp"

#include "io/temporary_directory.hpp"

#include <boost/test/unit_test.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

using namespace lockstep;

namespace {

using Launcher = LaunchFacts::Launcher;

LaunchFacts read(const std::map<std::string, std::string>& environment) {
  return read_launch([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  });
}

/// A /proc of this process and its parents, by name from the innermost.
void write_parents(const test::TemporaryDirectory& proc, const std::vector<std::string>& names,
                   const std::string& outermost = "pid:[4026531836]") {
  namespace fs = std::filesystem;
  fs::create_directories(proc / "self/ns");
  fs::create_symlink(outermost, proc / "self/ns/pid");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string pid = i == 0 ? "self" : std::to_string(100 - i);
    const std::size_t parent = i + 1 == names.size() ? 0 : 100 - (i + 1);
    fs::create_directories(proc / pid);
    std::ofstream(proc / (pid + "/stat"))
        << 100 - i << " (" << names[i] << ") S " << parent << " 1 1\n";
  }
}

std::string text_of(const std::optional<LaunchProblem>& problem) {
  return problem ? problem->text : "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
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

BOOST_AUTO_TEST_CASE(hydra_is_told_from_srun_that_starts_its_proxies) {
  const LaunchFacts facts = read({{"SLURM_STEP_ID", "0"},
                                  {"SLURM_STEP_NUM_TASKS", "2"},
                                  {"PMI_SIZE", "8"},
                                  {"PMI_RANK", "5"},
                                  {"MPI_LOCALRANKID", "1"}});

  BOOST_TEST((facts.launcher == Launcher::mpirun));
  BOOST_TEST(facts.started.value() == 8);
  BOOST_TEST(!facts.allocated);
}

BOOST_AUTO_TEST_CASE(parts_of_a_heterogeneous_job_do_not_tell_its_number_of_tasks) {
  BOOST_TEST(!read({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_HET_SIZE", "2"}})
                  .started);
  BOOST_TEST(!read({{"SLURM_NTASKS", "2"}, {"SLURM_HET_SIZE", "2"}}).allocated);
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

BOOST_AUTO_TEST_CASE(slurms_steps_of_its_own_have_no_launcher) {
  // The shell of salloc with use_interactive_step.
  const LaunchFacts facts =
      read({{"SLURM_STEP_ID", "4294967290"}, {"SLURM_NTASKS", "8"}, {"SLURM_STEP_NUM_TASKS", "1"}});

  BOOST_TEST((facts.launcher == Launcher::none));
  BOOST_TEST(facts.allocated.value() == 8);
}

BOOST_AUTO_TEST_CASE(tasks_of_a_job_that_asked_for_nodes_only_are_counted_by_node) {
  BOOST_TEST(read({{"SLURM_JOB_NUM_NODES", "2"}}).allocated.value() == 2);
  BOOST_TEST(
      read({{"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_NTASKS_PER_NODE", "4"}}).allocated.value() == 8);
}

BOOST_AUTO_TEST_CASE(slots_of_pbs_are_counted_in_its_file) {
  const test::TemporaryDirectory directory;
  const std::string file = directory / "nodes";
  std::ofstream(file) << "a\na\nb\nb\n";

  const LaunchFacts facts = read({{"PBS_NODEFILE", file}});

  BOOST_TEST(facts.allocated.value() == 4);
  BOOST_TEST(facts.allocated_by == "PBS_NODEFILE");
  BOOST_TEST(!read({{"PBS_NODEFILE", directory / "absent"}}).allocated);
  BOOST_TEST(!read({{"PBS_NODEFILE", directory.path()}}).allocated);
}

BOOST_AUTO_TEST_CASE(the_job_scripts_count_comes_before_the_allocations) {
  BOOST_TEST(read({{"LOCKSTEP_RANKS", "6"}, {"SLURM_NTASKS", "8"}}).allocated.value() == 6);
}

BOOST_AUTO_TEST_CASE(fewer_ranks_than_tasks_are_a_problem_unless_srun_was_asked_for_them) {
  const std::string by_hand = text_of(judge_launch(read({{"SLURM_NTASKS", "8"}}), 1, "MPI"));
  const std::string fewer =
      text_of(judge_launch(read({{"SLURM_NTASKS", "8"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), 1, "MPI"));
  const LaunchFacts step =
      read({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"}});

  BOOST_TEST(contains(by_hand, "1 rank where Slurm's count is 8 (SLURM_NTASKS"));
  BOOST_TEST(contains(by_hand, "start with srun --mpi=pmix or mpirun"));
  BOOST_TEST(contains(fewer, "mpirun started 1 rank where the allocation is of 8 tasks"));
  BOOST_TEST(contains(fewer, "leave out mpirun's -n"));
  BOOST_TEST(!judge_launch(step, 2, "MPI"));
  BOOST_TEST(!judge_launch(read({}), 1, "MPI"));
  BOOST_TEST(!judge_launch(read({{"SLURM_NTASKS", "8"}}), 8, "MPI"));
}

BOOST_AUTO_TEST_CASE(more_ranks_than_nodes_are_no_problem) {
  const LaunchFacts facts = read({{"SLURM_JOB_NUM_NODES", "2"}, {"OMPI_COMM_WORLD_SIZE", "16"}});

  BOOST_TEST(!judge_launch(facts, 16, "MPI"));
}

BOOST_AUTO_TEST_CASE(variables_left_over_in_a_shell_are_told_but_are_no_fault) {
  LaunchFacts facts = read({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}});
  facts.left_over = true;

  const auto problem = judge_launch(facts, 1, "MPI");

  BOOST_TEST(!problem->is_certain);
  BOOST_TEST(contains(text_of(problem), "process 2 of 4 by mpirun"));
  BOOST_TEST(contains(text_of(problem), "left over in this shell"));
}

BOOST_AUTO_TEST_CASE(a_launcher_is_found_among_all_parents) {
  const test::TemporaryDirectory under_mpirun;
  write_parents(under_mpirun, {"lockstep", "a) name (x", "orted", "systemd"});
  const test::TemporaryDirectory in_a_shell;
  write_parents(in_a_shell, {"lockstep", "bash", "sshd", "systemd"});

  BOOST_TEST((has_launcher_parent(under_mpirun.path()) == true));
  BOOST_TEST((has_launcher_parent(in_a_shell.path()) == false));
}

BOOST_AUTO_TEST_CASE(where_not_all_parents_are_seen_a_launcher_is_unknown) {
  const test::TemporaryDirectory container;
  write_parents(container, {"lockstep", "sh"}, "pid:[4026532000]");
  const test::TemporaryDirectory hidden;
  write_parents(hidden, {"lockstep", "bash", "systemd"});
  std::filesystem::remove(hidden / "99/stat");

  BOOST_TEST(!has_launcher_parent(container.path()).has_value());
  BOOST_TEST(!has_launcher_parent(hidden.path()).has_value());
  BOOST_TEST(!has_launcher_parent("/nonexistent").has_value());
}

BOOST_AUTO_TEST_CASE(a_pmix_server_that_has_ended_is_known_by_its_port) {
  const int server = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  BOOST_REQUIRE(::bind(server, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  BOOST_REQUIRE(::listen(server, 1) == 0);
  socklen_t size = sizeof(address);
  ::getsockname(server, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string variable =
      "PMIX_SERVER_URI41=1.0;tcp4://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const std::vector<const char*> variables{"HOME=/root", variable.c_str()};

  const std::string while_it_runs = ended_launcher(variables);
  ::close(server);
  const std::string afterwards = ended_launcher(variables);

  BOOST_TEST(while_it_runs.empty());
  BOOST_TEST(afterwards == variable);
  const std::vector<const char*> none{"HOME=/root"};
  BOOST_TEST(ended_launcher(none).empty());
  const std::vector<const char*> other_form{"PMIX_SERVER_URI=1.0;usock:/tmp/x"};
  BOOST_TEST(ended_launcher(other_form).empty());
}
