#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

struct ListedImage {
  std::string name;  ///< relative to the class folder
  std::int64_t label = 0;
  std::uint64_t bytes = 0;
};
struct FolderPart {
  std::string directory;
  std::vector<ListedImage> images;  ///< sorted by class, then by name
};
struct FolderListing {
  std::vector<std::string> classes;  ///< sorted
  FolderPart train;
  FolderPart val;  ///< empty if there is no val/
};

/// Lists PNG and JPEG files (by extension) in class folders. Error(no_input) if the folder or its
/// class folders are missing; Error(bad_input) if a class is empty or not in the training part, if
/// val/ has no class folders, or if images are outside class folders.
[[nodiscard]] FolderListing list_folder(const std::string& directory);

}  // namespace lockstep
