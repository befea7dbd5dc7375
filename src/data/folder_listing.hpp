#pragma once

#include "image_list.hpp"
#include "label_file.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack_source.hpp"

#include <optional>
#include <string>

namespace lockstep {

/// Lists images in class folders, by class and then by path; each folder on one rank only. The
/// input holds class folders, or parts (find_parts()) that hold them; with `labels`, the part that
/// becomes val holds the images themselves. Each entry has one fate. Collective. Error(no_input)
/// if the folder or its class folders are missing, or if an entry cannot be examined;
/// Error(bad_input) if a class is not in the training part, if a part has no class folders, if
/// images are outside class folders, or by the label files; with OnBad::stop also if a class folder
/// has no image.
[[nodiscard]] ImageListing list_folder(const std::string& directory,
                                       const std::optional<LabelPaths>& labels, OnBad on_bad,
                                       Communicator& comm);

}  // namespace lockstep
