#pragma once

#include "image_list.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack_source.hpp"

#include <string>

namespace lockstep {

class ArchiveFile;

/// Lists the samples in a directory's tar archives, each archive on one rank only. `class_names` is
/// a file with a line for each class, or empty. Collective. Error(no_input) if there is no archive;
/// Error(bad_input) if one is damaged, if a sample has no image or no label, or if a label has no
/// class; with OnBad::stop also if a member belongs to no sample.
[[nodiscard]] ImageListing list_webdataset(const std::string& directory,
                                           const std::string& class_names, OnBad on_bad,
                                           Communicator& comm);

/// The samples of one archive, in the order of their first members, with `container` in each.
[[nodiscard]] ListedEntries list_samples(const ArchiveFile& file, std::int32_t container,
                                         OnBad on_bad);

}  // namespace lockstep
