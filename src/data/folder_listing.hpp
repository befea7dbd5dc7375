#pragma once

#include "image_list.hpp"
#include "label_file.hpp"
#include "lockstep/comm/communicator.hpp"

#include <optional>
#include <string>

namespace lockstep {

/// Lists PNG and JPEG files (by extension) in class folders, by class and then by name; each folder
/// on one rank only. Collective. Error(no_input) if the folder or its class folders are missing;
/// Error(bad_input) if a class is empty or not in the training part, if val/ has no class folders,
/// if images are outside class folders, or by the label files. With `labels`, val/ must have images
/// and no class folders.
[[nodiscard]] ImageListing list_folder(const std::string& directory,
                                       const std::optional<LabelPaths>& labels, Communicator& comm);

}  // namespace lockstep
