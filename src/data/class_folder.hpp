#pragma once

#include "image_kind.hpp"
#include "image_list.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

inline constexpr const char* hidden_reason = "hidden or temporary, by its name";

/// What to do with the images found in a folder.
enum class FolderUse {
  read,      ///< they are samples
  refuse,    ///< they look like data and have no place
  leave_out  ///< a part that is not packed
};

struct FolderWalk {
  std::filesystem::path folder;
  FolderUse use = FolderUse::read;
  std::string reason = {};      ///< of `refuse` and `leave_out`
  bool refuses_formats = true;  ///< else images of other formats are listed: decoding refuses them
  std::int32_t container = 0;   ///< of the images
};

/// Lists all entries below a folder, through links, as torchvision's ImageFolder: images at any
/// depth, sorted by their path in the folder. Error(no_input) for an entry that cannot be examined,
/// such as a dangling link; Error(bad_input) for a link to a folder above itself, and for a class
/// folder that holds parts, as cat/train and cat/val.
[[nodiscard]] ListedEntries walk_folder(const FolderWalk& walk);

/// judge_image() of a file. Error(no_input) if it must be read and cannot be.
[[nodiscard]] JudgedFile judge_file(const std::filesystem::path& path);

}  // namespace lockstep
