#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/class_names.hpp"
#include "lockstep/data/dataset.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

struct RenumberedClasses {
  ClassNumbering numbering;
  std::vector<std::string> class_names;  ///< by the new numbers
  std::uint32_t identity = 0;            ///< DatasetInfo::identity
};
/// The same samples with numbering[label] for each label, after the files' checksums are checked.
[[nodiscard]] std::unique_ptr<Dataset> renumber(std::unique_ptr<Dataset> data,
                                                RenumberedClasses classes);

/// The identity that a split would have if its files held the renumbered labels. Reads labels and
/// checksums again. Collective.
[[nodiscard]] std::uint32_t renumbered_identity(const DatasetInfo& info,
                                                const ClassNumbering& numbering,
                                                Communicator& comm);

}  // namespace lockstep
