#pragma once

#include "lockstep/core/environment_variable.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// Which parts of NCCL a run uses; equal on all ranks.
struct NcclSettings {
  /// Arenas are registered as symmetric windows.
  bool windows = true;
  /// "NCCL 2.28.9, NVLS and windows off (deterministic)": what the bits of a sum depend on, besides
  /// the ranks and their GPUs and networks. Empty: not compared between ranks.
  std::string text = {};
};

/// The user's variables as NCCL finds them: in `environment`, then in the file that NCCL_CONF_FILE
/// names or else `home`/.nccl.conf, then in `system`. Reads the files at once.
[[nodiscard]] VariableLookup nccl_variables(VariableLookup environment,
                                            const std::filesystem::path& home,
                                            const std::filesystem::path& system);
/// Of this process and this user, with /etc/nccl.conf.
[[nodiscard]] VariableLookup nccl_variables();

/// Sets NCCL_NVLS_ENABLE=0 in the environment, unless the user has set it: the sums of NVLS (in the
/// switch of NVLink) may differ between calls. Call before threads of our own start and before
/// NCCL's first call.
void forbid_nvls(const VariableLookup& variables);

/// Why memory is not registered as windows with this version (22907 for 2.29.7); empty: it is.
/// Pure.
[[nodiscard]] std::string fault_of_windows(int version);

/// Pure. `deterministic`: without what may give other bits in each run, unless the user's variables
/// say otherwise. NVLS is off only if forbid_nvls() or the user turned it off.
[[nodiscard]] NcclSettings nccl_settings(int version, bool deterministic,
                                         const VariableLookup& variables);

}  // namespace lockstep
