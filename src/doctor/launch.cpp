#include "lockstep/doctor/facts.hpp"

#include <array>
#include <charconv>
#include <string_view>

namespace lockstep::doctor {
namespace {

std::optional<int> to_number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  int value = 0;
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace

LaunchFacts read_launch(const std::function<std::optional<std::string>(const char*)>& lookup) {
  const auto number = [&](const char* name) { return to_number(lookup(name)); };
  LaunchFacts facts{.node = lookup("SLURMD_NODENAME").value_or("")};
  const bool in_step = number("SLURM_STEP_ID").has_value();
  // Open MPI's daemons on other nodes run in a separate Slurm step, so mpirun is checked first.
  for (const auto& [size, rank, local] :
       {std::array{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
        std::array{"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"}}) {
    // srun also sets PMI_SIZE, with --mpi=pmi2.
    if (!number(size) || (in_step && std::string_view(size) == "PMI_SIZE")) continue;
    facts.launcher = LaunchFacts::Launcher::mpirun;
    facts.started = number(size);
    facts.process = number(rank).value_or(0);
    facts.local_process = number(local).value_or(0);
    if (!in_step) facts.allocated = number("SLURM_NTASKS");
    return facts;
  }
  if (in_step) {
    facts.launcher = LaunchFacts::Launcher::srun;
    const auto of_step = number("SLURM_STEP_NUM_TASKS");
    facts.started = of_step ? of_step : number("SLURM_NTASKS");
    facts.process = number("SLURM_PROCID").value_or(0);
    facts.local_process = number("SLURM_LOCALID").value_or(0);
    return facts;
  }
  facts.allocated = number("SLURM_NTASKS");
  return facts;
}

}  // namespace lockstep::doctor
