#pragma once

#include "lockstep/core/slice.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/sample_order.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// One file to write.
struct ShardTask {
  SourcePart part;
  std::string name;
  Slice positions;  ///< in the part's order
};

/// All shards of a source, those of the training part first. Error(bad_input or usage).
[[nodiscard]] std::vector<ShardTask> plan_shards(const PackSource& source,
                                                 const PackOptions& options);

/// The seeded order in which a part is packed; the part has at least one sample.
[[nodiscard]] SampleOrder packing_order(const PackSource& source, SourcePart part,
                                        std::uint64_t seed);

}  // namespace lockstep
