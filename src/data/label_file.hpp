#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Text of a file that a user gives, and its path for messages.
struct NamedText {
  std::string path;
  std::string text;
};

/// Error(no_input) if the file is absent or unreadable.
[[nodiscard]] NamedText read_text(const std::string& path);

/// Class numbers of ILSVRC's development kit and the classes they stand for.
using ClassIds = std::map<std::int64_t, std::string>;
/// Lines "ID CLASS"; the class is the rest of the line, or its first word. Error(bad_input).
[[nodiscard]] ClassIds parse_class_ids(const NamedText& file);

/// A set of images without class folders.
struct Unlabelled {
  std::span<const std::string> images;   ///< file names, in the order of the images
  std::span<const std::string> classes;  ///< sorted
  const ClassIds* class_ids = nullptr;   ///< if the user gave such a file
};

/// The label of each image: the index of its class. The format is found by content:
/// - "ImageId,PredictionString", then "IMAGE,CLASS ..." (Kaggle's LOC_val_solution.csv);
/// - "IMAGE CLASS", with the names of classes, or in the whole file their indices; an image's name
///   with or without its extension; names may have blanks, and a box may follow;
/// - a number on each line, in the order of the images' names (ILSVRC's validation ground truth),
///   which needs `class_ids`.
/// Error(bad_input) unless each image has exactly one label and each label an image.
[[nodiscard]] std::vector<std::int32_t> parse_labels(const NamedText& file,
                                                     const Unlabelled& unlabelled);

/// Files with the labels of images; `class_ids` may be empty.
struct LabelPaths {
  std::string labels;
  std::string class_ids;
};
/// parse_labels() of these files.
[[nodiscard]] std::vector<std::int32_t> read_labels(const LabelPaths& paths,
                                                    std::span<const std::string> images,
                                                    std::span<const std::string> classes);

/// Lines "CLASS NAME", such as "n01440764 tench, Tinca tinca", in the file's order.
/// Error(bad_input) for a line without a name, and for a class that occurs twice.
struct ClassName {
  std::string id;
  std::string name;
  friend bool operator==(const ClassName&, const ClassName&) = default;
};
[[nodiscard]] std::vector<ClassName> parse_class_names(const NamedText& file);

/// The name of each of `classes`. Error(bad_input) if one has none.
[[nodiscard]] std::vector<std::string> names_of(std::span<const std::string> classes,
                                                const NamedText& file);

}  // namespace lockstep
