#include <boost/test/unit_test.hpp>

#include "lockstep/comm/mpi_communicator.hpp"
#include "lockstep/runtime/mpi_environment.hpp"
#include "lockstep/runtime/process_grid.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

using namespace lockstep;

namespace {

using Variables = std::map<std::string, std::string>;

/// Hides the launcher, batch system or container of these tests from the child.
void replace_environment(Variables variables) {
  for (const char* name : {"PATH", "HOME", "TMPDIR"}) {
    if (const char* value = std::getenv(name)) variables.try_emplace(name, value);
  }
  variables.try_emplace("PATH", "/usr/bin:/bin");
  ::clearenv();
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
}

[[noreturn]] void start_and_exit(const Variables& variables, const std::function<bool()>& check) {
  bool holds = false;
  try {
    replace_environment(variables);
    auto& suite = boost::unit_test::framework::master_test_suite();
    const MpiEnvironment environment(suite.argc, suite.argv);
    holds = check();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  ::_exit(holds ? 0 : 1);
}

/// Whether `check` holds after MPI has started with only `variables` in the environment. Runs in a
/// child, because a process can start MPI only once.
bool holds_in_child(const Variables& variables, const std::function<bool()>& check) {
  const pid_t child = ::fork();
  if (child == 0) start_and_exit(variables, check);
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool transport_is(std::string_view expected) {
  const char* transport = std::getenv("OMPI_MCA_btl");
  return transport != nullptr && transport == expected;
}

std::string shared_memory_of_this_mpi() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view version(text.data());
  if (!version.starts_with("Open MPI")) return "";
  return version.starts_with("Open MPI v4") ? "self,vader" : "self,sm";
}

bool uses_no_network() {
  return transport_is("self");
}

bool is_unchanged() {
  return std::getenv("OMPI_MCA_btl") == nullptr;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_process_without_a_launcher_uses_no_daemon_and_no_network) {
  BOOST_TEST(holds_in_child({}, uses_no_network));
}

BOOST_AUTO_TEST_CASE(a_process_without_a_launcher_makes_no_folder) {
  BOOST_TEST(holds_in_child({{"TMPDIR", "/proc/none"}}, [] { return true; }));
}

BOOST_AUTO_TEST_CASE(a_process_of_a_job_without_a_launcher_needs_no_program_in_path) {
  for (const char* name : {"PBS_NODEFILE", "SLURM_JOB_ID", "LSB_JOBID"}) {
    BOOST_TEST(holds_in_child({{name, "7"}, {"PATH", "/nonexistent"}}, [] { return true; }), name);
  }
}

BOOST_AUTO_TEST_CASE(directories_that_do_not_exist_are_unset_before_mpi_starts) {
  const auto names_it = [] {
    return unset_missing_directories().empty() && std::getenv("TMPDIR") == nullptr;
  };
  const pid_t child = ::fork();
  if (child == 0) {
    replace_environment({{"TMPDIR", "/proc/none"}, {"TMP", ""}, {"TEMP", "/tmp"}});
    const bool named = unset_missing_directories() == std::vector<std::string>{"TMPDIR=/proc/none"};
    ::_exit(named && names_it() && std::getenv("TMP") == nullptr &&
                    std::string_view(std::getenv("TEMP")) == "/tmp"
                ? 0
                : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  BOOST_TEST((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

BOOST_AUTO_TEST_CASE(settings_of_an_mpi_are_not_taken_for_a_launcher) {
  const Variables settings[] = {{{"OMPI_ALLOW_RUN_AS_ROOT", "1"}},
                                {{"OMPI_MCA_btl_vader_single_copy_mechanism", "none"}},
                                {{"MPI_HOME", "/usr"}},
                                {{"I_MPI_ROOT", "/opt/intel/mpi"}},
                                {{"HYDRA_LAUNCHER", "ssh"}}};
  for (const Variables& variables : settings) {
    BOOST_TEST_CONTEXT(variables.begin()->first)
    BOOST_TEST(holds_in_child(variables, uses_no_network));
  }
}

BOOST_AUTO_TEST_CASE(the_users_transport_is_kept) {
  BOOST_TEST(
      holds_in_child({{"OMPI_MCA_btl", "self,vader"}}, [] { return transport_is("self,vader"); }));
}

BOOST_AUTO_TEST_CASE(the_users_send_buffers_are_kept) {
  const auto is_kept = [] {
    return std::string_view(std::getenv("OMPI_MCA_btl_tcp_sndbuf")) == "65536";
  };
  BOOST_TEST(holds_in_child({{"PBS_O_HOME", "here"},
                             {"OMPI_MCA_btl_tcp_sndbuf", "65536"},
                             {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                             {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}},
                            is_kept));
}

BOOST_AUTO_TEST_CASE(one_variable_of_a_batch_system_leaves_mpi_unchanged) {
  // Without these, Open MPI's daemon does not start as root.
  const Variables as_root{{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  for (const char* name : {"PBS_O_HOME", "SLURM_CLUSTER_NAME", "LSB_QUEUE"}) {
    Variables variables = as_root;
    variables[name] = "here";
    BOOST_TEST_CONTEXT(name)
    BOOST_TEST(holds_in_child(variables, is_unchanged));
  }
}

BOOST_AUTO_TEST_CASE(
    ranks_on_one_node_keep_off_tcp_unless_the_user_or_the_launcher_says_otherwise) {
  const Variables as_root{{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  struct Case {
    Variables launcher;
    std::string transports;  ///< empty: MPI's own choice
  };
  const std::string local = shared_memory_of_this_mpi();
  const Case cases[] = {
      {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}, local},
      {{{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}, ""},
      {{{"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
        {"OMPI_MCA_btl", "self,vader,tcp"}},
       "self,vader,tcp"},
      {{{"OMPI_COMM_WORLD_SIZE", "4"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
        {"PMIX_RANK", "0"},
        {"SLURM_STEP_NUM_NODES", "1"}},
       ""},
      {{{"SLURM_STEP_NUM_NODES", "1"}}, ""}};
  for (const Case& each : cases) {
    Variables variables = as_root;
    variables.insert(each.launcher.begin(), each.launcher.end());
    BOOST_TEST(holds_in_child(variables, [&] {
      const char* set = std::getenv("OMPI_MCA_btl");
      return each.transports == (set == nullptr ? "" : set);
    }));
  }
}

BOOST_AUTO_TEST_CASE(a_process_without_a_launcher_is_a_grid_of_one_rank) {
  BOOST_TEST(holds_in_child({}, [] {
    const ProcessGrid grid = make_process_grid();
    const auto comm = make_mpi_communicator();
    return grid.rank == 0 && grid.world_size == 1 && grid.nodes == 1 && comm->size() == 1 &&
           comm->all_reduce_value<std::int32_t>(3, ReduceOp::sum) == 3;
  }));
}
