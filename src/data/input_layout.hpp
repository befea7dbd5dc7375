#pragma once

#include "lockstep/data/entry_fates.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// What the folders of an input are, by their names and contents.
struct InputLayout {
  std::string train;                           ///< path of the folder with the training classes
  std::vector<std::string> classes;            ///< names of the class folders in `train`, sorted
  std::string val = {};                        ///< path; empty: there is no such part
  std::vector<std::string> val_classes = {};   ///< empty if val holds labelled images
  std::vector<std::string> unused_parts = {};  ///< paths of other evaluation parts
  std::vector<std::string> others = {};        ///< paths of folders beside the parts
  EntryFates fates = {};                       ///< of the entries that are in no such folder
  std::vector<std::string> notes = {};
};

/// Reads the folders of `directory` and of its parts, not those of the classes. `has_labels`: the
/// images of the part val are labelled by a file. Errors as list_folder().
[[nodiscard]] InputLayout find_layout(const std::string& directory, bool has_labels);

}  // namespace lockstep
