#pragma once

#include "label_file.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack_source.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class ArchiveFile;

struct ListedImage {
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;    ///< of its bytes in an archive; 0 in a folder
  std::int32_t container = 0;  ///< index in ImageListing::containers
  std::int32_t label = 0;
};

/// Images in order. Every rank keeps the list of all images, so each takes few bytes.
class ImageList final {
 public:
  /// `name` without zero bytes.
  void add(const ListedImage& image, std::string_view name);
  void append(const ImageList& other);
  /// Gives all images this container and label.
  void place_in(std::int32_t container, std::int32_t label) noexcept {
    for (ListedImage& image : images_) {
      image.container = container;
      image.label = label;
    }
  }

  [[nodiscard]] std::int64_t size() const noexcept {
    return static_cast<std::int64_t>(images_.size());
  }
  [[nodiscard]] const ListedImage& operator[](std::int64_t index) const noexcept {
    return images_[static_cast<std::size_t>(index)];
  }
  /// Valid until the list changes.
  [[nodiscard]] std::string_view name(std::int64_t index) const noexcept {
    return names_.data() + name_begins_[static_cast<std::size_t>(index)];
  }

  /// Bytes for a rank of the same program. take_bytes() returns what follows the list in `bytes`.
  void put_bytes(std::string& bytes) const;
  [[nodiscard]] std::string_view take_bytes(std::string_view bytes);

 private:
  std::vector<ListedImage> images_;
  std::vector<std::uint64_t> name_begins_;
  std::string names_;  ///< each ends with a zero byte
};

/// What one folder or archive holds: its images, and what became of its other entries.
struct ListedEntries {
  ImageList images = {};
  EntryFates fates = {};

  void append(const ListedEntries& other);
};

/// All images of a source.
struct ImageListing {
  std::int64_t classes = 0;
  std::vector<std::string> class_names = {};  ///< empty: unknown
  std::vector<std::string> containers = {};   ///< paths of the folders or archives with the images
  bool archives = false;                      ///< containers are tar archives
  ImageList train = {};
  ImageList val = {};                   ///< empty if there is no such part
  EntryFates fates = {};                ///< of all other entries
  std::vector<std::string> notes = {};  ///< choices that the input left open, for the user
};

/// Collective. Lists each item by `list` on one rank, so that no folder is read twice; returns what
/// the items hold, in order. All ranks return or all throw the same Error.
[[nodiscard]] std::vector<ListedEntries> list_on_all_ranks(
    Communicator& comm, std::size_t items, const std::function<ListedEntries(std::size_t)>& list);

/// Returns rank 0's fates on every rank.
[[nodiscard]] EntryFates broadcast_fates(Communicator& comm, const EntryFates& fates);

// The listings of image_source.cpp, one for each kind of input.

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

/// Lists the images in ILSVRC2012_img_train.tar, by class and then by name, and those in
/// ILSVRC2012_img_val.tar by name; the archive of each class on one rank only. Collective.
/// Error(no_input) if there is no archive of training images; Error(bad_input) if one is damaged or
/// has other contents, by the label files, or if there is only one of `labels` and the archive of
/// validation images.
[[nodiscard]] ImageListing list_imagenet_archives(const std::string& directory,
                                                  const std::optional<LabelPaths>& labels,
                                                  OnBad on_bad, Communicator& comm);

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
