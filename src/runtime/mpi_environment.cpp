#include "lockstep/runtime/mpi_environment.hpp"

#include <mpi.h>

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace lockstep {
namespace {

/// Whether a launcher may have started this process together with others. Each launcher of Open MPI
/// ranks, and each batch system that has one, sets variables with one of these prefixes. Variables
/// that users and containers set for MPI (OMPI_MCA_..., MPI_HOME) have other prefixes.
bool may_have_peers() {
  constexpr std::string_view beginnings[] = {
      "ALPS_", "FLUX_", "LSB_", "OMPI_COMM_WORLD_", "PALS_", "PBS_", "PMI", "PRTE_", "SLURM"};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    for (const std::string_view beginning : beginnings) {
      if (std::string_view(*variable).starts_with(beginning)) return true;
    }
  }
  return false;
}

/// A single process does not need a network, and looking for one takes longer than the rest of
/// MPI_Init. Nor does it need the folder of its job, which has the same name for all such
/// processes: one that ends removes it while another starts, which fails. Other MPIs ignore the
/// variables.
void start_alone() {
  ::setenv("OMPI_MCA_orte_create_session_dirs", "0", 0);
  ::setenv("OMPI_MCA_pml", "ob1", 0);
  ::setenv("OMPI_MCA_btl", "self", 0);
}

/// A process that no launcher started needs no daemon of Open MPI, even in a job. Starting one
/// takes several times as long as the rest of MPI_Init, and fails if PATH lacks its programs.
void need_no_daemon() {
  ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
}

std::string_view variable(const char* name) noexcept {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

/// Whether the launcher says that all ranks are on this node. The parts of a heterogeneous step of
/// Slurm are on nodes of their own, and each part counts only those.
bool all_ranks_are_here() noexcept {
  const std::string_view ranks = variable("OMPI_COMM_WORLD_SIZE");
  if (!ranks.empty()) return variable("OMPI_COMM_WORLD_LOCAL_SIZE") == ranks;
  return !variable("PMIX_RANK").empty() && variable("SLURM_STEP_NUM_NODES") == "1" &&
         variable("SLURM_HET_SIZE").empty();
}

/// Open MPI's transport by TCP makes each rank listen on all interfaces, for anybody, even if all
/// of its messages go through shared memory. A list replaces the one of the site's file, so
/// it names what to use: excluding TCP would admit what that file excludes.
void stay_off_tcp() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return;
  constexpr std::string_view name = "Open MPI v";
  const std::string_view version(text.data());
  if (!version.starts_with(name)) return;
  const bool is_older = version.substr(name.size()) < "5" && version[name.size() + 1] == '.';
  ::setenv("OMPI_MCA_btl", is_older ? "self,vader" : "self,sm", 0);
}

/// Open MPI's own choice lets the kernel grow the buffer of each TCP connection to megabytes.
/// Values for the next round then wait behind those, on the link and in its switch; see
/// docs/communication.md.
void limit_send_buffers() {
  ::setenv("OMPI_MCA_btl_tcp_sndbuf", "524288", 0);
}

}  // namespace

int rank_before_start() noexcept {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* const rank = std::getenv(name)) return std::atoi(rank);
  }
  return 0;
}

MpiEnvironment::MpiEnvironment(int& argc, char**& argv) {
  need_no_daemon();
  if (may_have_peers()) {
    limit_send_buffers();
    if (all_ranks_are_here()) stay_off_tcp();
  } else {
    start_alone();
  }
  int provided = MPI_THREAD_SINGLE;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
    fail(ExitStatus::internal,
         "MPI does not start (MPI_Init_thread failed); start with mpirun, or srun --mpi=pmix");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_FUNNELED) {
    fail(ExitStatus::internal,
         "MPI gives thread level {} (loader and saver threads need MPI_THREAD_FUNNELED, {}); use "
         "an MPI built with thread support",
         provided, int{MPI_THREAD_FUNNELED});
  }
}

std::string mpi_transports() {
  return all_ranks_are_here() ? std::string(variable("OMPI_MCA_btl")) : std::string();
}

std::vector<std::string> unset_missing_directories() {
  std::vector<std::string> unset;
  for (const char* name : {"TMPDIR", "TMP", "TEMP"}) {
    const char* const value = std::getenv(name);
    std::error_code unknown;
    if (value == nullptr || std::filesystem::is_directory(value, unknown)) continue;
    if (*value != '\0') unset.push_back(std::string(name) + "=" + value);
    ::unsetenv(name);
  }
  return unset;
}

std::string mpi_library() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string all(text.data(), static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

MpiEnvironment::~MpiEnvironment() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Finalize();
}

void abort_job(int status) noexcept {
  // MPICH's launcher may drop output that is still in its pipes when the abort arrives.
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

void abort_from_any_thread(ExitStatus status) {
  std::thread([status] {
    std::this_thread::sleep_for(std::chrono::seconds(5));
    std::_Exit(static_cast<int>(status));
  }).detach();
  abort_job(static_cast<int>(status));
}

}  // namespace lockstep
