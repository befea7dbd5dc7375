#include "image_list.hpp"

#include "class_folder.hpp"
#include "input_layout.hpp"
#include "lockstep/comm/broadcast_texts.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <filesystem>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

InputLayout broadcast_layout(Communicator& comm, const InputLayout& found) {
  const std::vector<std::string> paths = broadcast_texts(comm, {found.train, found.val});
  return {.train = paths[0],
          .classes = broadcast_texts(comm, found.classes),
          .val = paths[1],
          .val_classes = broadcast_texts(comm, found.val_classes),
          .unused_parts = broadcast_texts(comm, found.unused_parts),
          .others = broadcast_texts(comm, found.others),
          .fates = broadcast_fates(comm, found.fates),
          .notes = broadcast_texts(comm, found.notes)};
}

/// Index of a test part's class folder among the training part's.
std::int32_t label_of(const fs::path& folder, const std::vector<std::string>& classes) {
  const auto found = std::lower_bound(classes.begin(), classes.end(), folder.filename().string());
  if (found == classes.end() || *found != folder.filename().string()) {
    fail(ExitStatus::bad_input,
         "{} is a class that the training part does not have ({} classes, {} to {}); add its "
         "training images, check its name, or give --val-labels if its images are in no class "
         "folders",
         folder.string(), classes.size(), classes.front(), classes.back());
  }
  return static_cast<std::int32_t>(found - classes.begin());
}

/// The images of the part val, sorted by path, with labels from files, which know their names.
ListedEntries list_labelled(const FolderWalk& walk, const LabelPaths& paths,
                            const std::vector<std::string>& classes) {
  ListedEntries found = walk_folder(walk);
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < found.images.size(); ++i) {
    names.push_back(fs::path(found.images.name(i)).filename().string());
  }
  const std::vector<std::int32_t> labels = read_labels(paths, names, classes);
  ListedEntries labelled{.images = {}, .fates = std::move(found.fates)};
  for (std::size_t i = 0; i < names.size(); ++i) {
    ListedImage image = found.images[static_cast<std::int64_t>(i)];
    image.label = labels[i];
    labelled.images.add(image, found.images.name(static_cast<std::int64_t>(i)));
  }
  return labelled;
}

/// Refuses the class folders that hold no image, and takes them out of `classes` and `folders`.
void refuse_empty(const std::string& part, std::vector<ListedEntries>& folders,
                  std::vector<std::string>& classes, EntryFates& fates) {
  std::vector<ListedEntries> kept;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (folders[i].images.size() == 0 && folders[i].fates.unused().empty()) {
      fates.append(folders[i].fates);
      fates.refuse("a class folder that holds no JPEG or PNG file",
                   (fs::path(part) / classes[i]).string());
      continue;
    }
    kept.push_back(std::move(folders[i]));
    names.push_back(std::move(classes[i]));
  }
  folders = std::move(kept);
  classes = std::move(names);
}

/// Joins the lists of class folders, which become containers of `listing`.
ImageList join_classes(const std::string& part, std::vector<ListedEntries> folders,
                       std::vector<std::string> names, ImageListing& listing) {
  refuse_empty(part, folders, names, listing.fates);
  if (listing.class_names.empty()) listing.class_names = names;
  ImageList all;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const fs::path folder = fs::path(part) / names[i];
    const auto container = static_cast<std::int32_t>(listing.containers.size());
    const std::int32_t label = label_of(folder, listing.class_names);
    listing.containers.push_back(folder.string());
    folders[i].images.place_in(container, label);
    all.append(folders[i].images);
    listing.fates.append(folders[i].fates);
  }
  return all;
}

}  // namespace

ImageListing list_folder(const std::string& directory, const std::optional<LabelPaths>& labels,
                         OnBad on_bad, Communicator& comm) {
  InputLayout found;
  collectively(comm, [&] {
    if (comm.rank() == 0) found = find_layout(directory, labels.has_value());
  });
  const InputLayout layout = broadcast_layout(comm, found);
  const bool stops = on_bad == OnBad::stop;
  const auto list_classes = [&](const std::string& part, const std::vector<std::string>& names) {
    return list_on_all_ranks(comm, names.size(), [&](std::size_t item) {
      return walk_folder({.folder = fs::path(part) / names[item], .refuses_formats = stops});
    });
  };
  const auto list_others = [&](const std::vector<std::string>& folders, FolderUse use,
                               const std::string& reason, ImageListing& listing) {
    for (const ListedEntries& entries : list_on_all_ranks(comm, folders.size(), [&](std::size_t i) {
           return walk_folder({.folder = folders[i], .use = use, .reason = reason});
         })) {
      listing.fates.append(entries.fates);
    }
  };

  ImageListing listing{.fates = layout.fates, .notes = layout.notes};
  listing.train = join_classes(layout.train, list_classes(layout.train, layout.classes),
                               layout.classes, listing);
  listing.classes = static_cast<std::int64_t>(listing.class_names.size());
  list_others(layout.others, FolderUse::refuse, "an image in a folder beside the parts", listing);
  list_others(layout.unused_parts, FolderUse::leave_out, "in an evaluation part that is not packed",
              listing);
  if (stops) listing.fates.require_all_used();
  if (listing.class_names.size() < std::min<std::size_t>(layout.classes.size(), 2)) {
    fail(ExitStatus::bad_input, "{} of {} class folders of {} holds an image; check --input",
         listing.class_names.size(), layout.classes.size(), layout.train);
  }
  if (!labels) {
    listing.val = join_classes(layout.val, list_classes(layout.val, layout.val_classes),
                               layout.val_classes, listing);
    if (stops) listing.fates.require_all_used();
    return listing;
  }
  const auto container = static_cast<std::int32_t>(listing.containers.size());
  listing.containers.push_back(layout.val);
  const std::vector<ListedEntries> val = list_on_all_ranks(comm, 1, [&](std::size_t) {
    return list_labelled({.folder = layout.val, .refuses_formats = stops, .container = container},
                         *labels, listing.class_names);
  });
  listing.val = val.front().images;
  listing.fates.append(val.front().fates);
  if (stops) listing.fates.require_all_used();
  return listing;
}

}  // namespace lockstep
