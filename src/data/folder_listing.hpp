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
  std::vector<ListedImage> images;  ///< by class, then by name
};
struct FolderListing {
  std::vector<std::string> classes;  ///< sorted
  FolderPart train;
  FolderPart val;  ///< empty where there is no val/
};

/// Lists PNG and JPEG files (by extension) in class folders. Error(no_input) where the folder or
/// its class folders are not there, Error(bad_input) where a class is empty or unknown in training,
/// where val/ has no class folders, and where images lie beside the class folders.
[[nodiscard]] FolderListing list_folder(const std::string& directory);

}  // namespace lockstep
