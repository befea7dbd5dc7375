#pragma once

#include "lockstep/data/dataset.hpp"

#include <cstdint>
#include <memory>

namespace lockstep::benchmark {

/// JPEG files in memory, repeated to `samples`: generated images of 500x375 pixels (every fourth
/// upright) with detail at all scales, as photographs have, in quality 90. The same in every run.
[[nodiscard]] std::unique_ptr<Dataset> make_generated_jpegs(std::int64_t samples,
                                                            std::int64_t classes);

}  // namespace lockstep::benchmark
