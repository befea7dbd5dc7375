#pragma once

#include "link_options.hpp"
#include "lockstep/core/error.hpp"

#include <string>

namespace lockstep::cli {

struct ScalingReport {
  std::string study;   ///< directory of results
  std::string output;  ///< page to write
  LinkOptions links;   ///< without `link`, nothing is predicted
  bool json = false;
};

/// Prints the table of a scaling study and writes its page. ExitStatus::unfit if points are
/// missing.
[[nodiscard]] ExitStatus report_scaling(const ScalingReport& report);

}  // namespace lockstep::cli
