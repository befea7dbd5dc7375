#pragma once

#include "image_list.hpp"
#include "label_file.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack_source.hpp"

#include <optional>
#include <string>

namespace lockstep {

/// Lists the images in ILSVRC2012_img_train.tar, by class and then by name, and those in
/// ILSVRC2012_img_val.tar by name; the archive of each class on one rank only. Collective.
/// Error(no_input) if there is no archive of training images; Error(bad_input) if one is damaged or
/// has other contents, by the label files, or if there is only one of `labels` and the archive of
/// validation images.
[[nodiscard]] ImageListing list_imagenet_archives(const std::string& directory,
                                                  const std::optional<LabelPaths>& labels,
                                                  OnBad on_bad, Communicator& comm);

}  // namespace lockstep
