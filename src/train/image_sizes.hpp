#pragma once

#include "lockstep/data/dataset.hpp"
#include "lockstep/train/run_plan.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// How stored images become the network's input, for the user.
struct ImageDescription {
  std::string line;                   ///< "JPEG files; training ...; evaluation ..."
  std::vector<std::string> warnings;  ///< of sizes that do not go together
};

/// Pure. A split that is null is not read.
[[nodiscard]] ImageDescription describe_images(const RunPlan& plan, const DatasetInfo* training,
                                               const DatasetInfo* validation);

/// The options of `config` that decide how evaluations resize JPEG images, as "--eval-resize 232";
/// empty if all have their defaults.
[[nodiscard]] std::string resizing_options(const Config& config);

/// Error(usage) if `given` has such options and the images are stored as pixels.
void refuse_resizing(const Config& given, const DatasetInfo& validation);

}  // namespace lockstep
