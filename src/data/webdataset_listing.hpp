#pragma once

#include "image_list.hpp"
#include "lockstep/comm/communicator.hpp"

#include <string>

namespace lockstep {

class ArchiveFile;

/// Lists the samples in a directory's tar archives, each archive on one rank only. `class_names` is
/// a file with a line for each class, or empty. Collective. Error(no_input) if there is no archive;
/// Error(bad_input) if one is damaged, if a sample has no image or no label, or if a label has no
/// class.
[[nodiscard]] ImageListing list_webdataset(const std::string& directory,
                                           const std::string& class_names, Communicator& comm);

/// The samples of one archive, in its order.
[[nodiscard]] ImageList list_samples(const ArchiveFile& file, std::int32_t container);

}  // namespace lockstep
