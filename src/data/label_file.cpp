#include "label_file.hpp"

#include "label_lines.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text_file.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace lockstep {
namespace {

constexpr std::string_view class_name_lines = "CLASS NAME, such as 'n01440764 tench, Tinca tinca'";
constexpr std::string_view kaggle_header = "ImageId,PredictionString";

/// An image and the class that the file gives it.
struct Row {
  std::int64_t line;
  std::string_view image;
  std::string_view label;
};

/// The longest class with which a text begins, as a word; else its first word.
std::string_view leading_class(std::string_view text, std::span<const std::string> classes) {
  std::string_view best = first_word(text);
  for (std::size_t at = text.find_first_of(separators);;
       at = text.find_first_of(separators, at + 1)) {
    if (const auto name = field(text.substr(0, at)); index_of(name, classes)) best = name;
    if (at == std::string_view::npos) return best;
  }
}

std::vector<Row> kaggle_rows(const NamedText& file, std::span<const Line> lines,
                             std::span<const std::string> classes) {
  std::vector<Row> rows;
  for (const Line& line : lines) {
    // A class and a box, for each object; all objects of an image are of one class.
    const Fields fields = split_first(file, line, "IMAGE,CLASS X1 Y1 X2 Y2 ...");
    rows.push_back({.line = line.number,
                    .image = fields.first,
                    .label = leading_class(fields.second, classes)});
  }
  return rows;
}

/// Indices of images, by their names with and without extension.
using ImageIndices = std::unordered_map<std::string_view, std::size_t>;

/// The class of "CLASS X1 Y1 X2 Y2", as in Tiny ImageNet's lists. Empty for other text.
std::string_view class_before_box(std::string_view text) {
  for (int number = 0; number < 4; ++number) {
    const std::size_t before = text.find_last_of(separators);
    if (before == std::string_view::npos || !number_in(text.substr(before + 1))) return {};
    text = field(text.substr(0, before));
  }
  return text;
}

/// Names of images and classes may have blanks and commas, so a line is split where it gives an
/// image that is there.
Row list_row(const NamedText& file, const Line& line, const ImageIndices& images,
             std::span<const std::string> classes) {
  Row best{.line = line.number, .image = {}, .label = {}};
  for (std::size_t at = line.text.find_first_of(separators); at != std::string_view::npos;
       at = line.text.find_first_of(separators, at + 1)) {
    std::string_view image = field(line.text.substr(0, at));
    image = image.substr(image.find_last_of('/') + 1);  // some lists have paths
    const std::string_view label = field(line.text.substr(at));
    if (image.empty() || label.empty()) continue;
    const bool known = images.contains(image);
    for (const std::string_view name : {label, class_before_box(label)}) {
      if (known && (index_of(name, classes) || number_in(name))) {
        return {.line = line.number, .image = image, .label = name};
      }
    }
    // For the message: the split with a known image, else the last one.
    if (known || !images.contains(best.image)) {
      best.image = image;
      best.label = label;
    }
  }
  if (best.image.empty()) {
    fail(ExitStatus::bad_input, "{}: line {} is '{}' (lines are IMAGE CLASS); check the file",
         file.path, line.number, line.text);
  }
  return best;
}

[[noreturn]] void refuse_label(const NamedText& file, const Row& row,
                               std::span<const std::string> classes) {
  fail(ExitStatus::bad_input,
       "{}: line {} gives {} the class '{}' (neither one of the {} training classes, {} to {}, nor "
       "a number from 0 to {}); check the file",
       file.path, row.line, row.image, row.label, classes.size(), classes.front(), classes.back(),
       classes.size() - 1);
}

/// How a file gives classes: by name, or by the number in the order of the names. One meaning for
/// the whole file, since a number may be both.
enum class LabelMeaning { name, number };

/// A number that equals another class's name but for zeros, as 1 beside folders 01, 02, 03, has two
/// meanings.
void refuse_padded(const NamedText& file, std::span<const Row> rows,
                   std::span<const std::string> classes) {
  std::unordered_map<std::int64_t, std::size_t> values;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (const auto value = number_in(classes[i])) values.emplace(*value, i);
  }
  for (const Row& row : rows) {
    const auto number = number_in(row.label);
    const auto found = number ? values.find(*number) : values.end();
    if (found == values.end() || static_cast<std::int64_t>(found->second) == *number) continue;
    fail(ExitStatus::bad_input,
         "{}: line {} gives {} the class {} (it may be class {}, or number {} in the order of the "
         "names, {}); use the names",
         file.path, row.line, row.image, row.label, classes[found->second], row.label,
         *number < static_cast<std::int64_t>(classes.size())
             ? classes[static_cast<std::size_t>(*number)]
             : "which is none");
  }
}

LabelMeaning meaning_of(const NamedText& file, std::span<const Row> rows,
                        std::span<const std::string> classes) {
  const auto is_name = [&](const Row& row) { return index_of(row.label, classes).has_value(); };
  const auto name = std::ranges::find_if(rows, is_name);
  const auto other = std::ranges::find_if_not(rows, is_name);
  if (other == rows.end()) return LabelMeaning::name;
  if (name == rows.end()) {
    refuse_padded(file, rows, classes);
    return LabelMeaning::number;
  }
  if (!number_in(other->label)) refuse_label(file, *other, classes);
  fail(ExitStatus::bad_input,
       "{}: {} (line {}) is the name of a class, but {} (line {}) is not (a file gives classes by "
       "their names, or all by their numbers from 0 in the order of the names); use the names",
       file.path, name->label, name->line, other->label, other->line);
}

std::int32_t label_of(const NamedText& file, const Row& row, LabelMeaning meaning,
                      std::span<const std::string> classes) {
  if (meaning == LabelMeaning::name) return *index_of(row.label, classes);
  const auto number = number_in(row.label);
  if (!number || *number < 0 || *number >= static_cast<std::int64_t>(classes.size())) {
    refuse_label(file, row, classes);
  }
  return static_cast<std::int32_t>(*number);
}

std::vector<std::int32_t> labels_by_name(const NamedText& file, std::span<const Line> lines,
                                         const Unlabelled& unlabelled) {
  ImageIndices images;
  for (std::size_t i = 0; i < unlabelled.images.size(); ++i) {
    const std::string_view name = unlabelled.images[i];
    if (!images.emplace(name, i).second && unlabelled.images[images.find(name)->second] == name) {
      fail(ExitStatus::bad_input,
           "two images are called {} (in different folders; {} knows images by their names alone); "
           "give them different names",
           name, file.path);
    }
    images.emplace(name.substr(0, name.find_last_of('.')), i);
  }
  std::vector<Row> rows;
  if (lines.front().text == kaggle_header) {
    rows = kaggle_rows(file, lines.subspan(1), unlabelled.classes);
  } else {
    for (const Line& line : lines) rows.push_back(list_row(file, line, images, unlabelled.classes));
  }
  const auto absent = std::stable_partition(
      rows.begin(), rows.end(), [&](const Row& row) { return images.contains(row.image); });
  if (const auto count = rows.end() - absent; count > 0) {
    fail(ExitStatus::bad_input,
         "{} labels {} image{} that {} not there, such as {} in line {}; check the file, or copy "
         "the images again",
         file.path, count, count == 1 ? "" : "s", count == 1 ? "is" : "are", absent->image,
         absent->line);
  }
  const LabelMeaning meaning = meaning_of(file, rows, unlabelled.classes);
  std::vector<std::int32_t> labels(unlabelled.images.size(), -1);
  for (const Row& row : rows) {
    std::int32_t& label = labels[images.find(row.image)->second];
    if (label >= 0) {
      fail(ExitStatus::bad_input, "{}: line {} gives {} a second label; keep one of the lines",
           file.path, row.line, row.image);
    }
    label = label_of(file, row, meaning, unlabelled.classes);
  }
  const auto without = std::count(labels.begin(), labels.end(), -1);
  if (without > 0) {
    const auto first = std::find(labels.begin(), labels.end(), -1) - labels.begin();
    fail(ExitStatus::bad_input,
         "{} has no label for {} of {} images, such as {}; check the file and --input", file.path,
         without, labels.size(), unlabelled.images[static_cast<std::size_t>(first)]);
  }
  return labels;
}

std::vector<std::int32_t> labels_by_order(const NamedText& file, std::span<const Line> lines,
                                          const Unlabelled& unlabelled) {
  if (unlabelled.class_ids == nullptr) {
    fail(ExitStatus::usage,
         "{} holds only numbers (the ground truth of ILSVRC's development kit numbers classes by "
         "ILSVRC2012_ID of meta.mat, which is not the order of their names); add --class-ids, or "
         "use LOC_val_solution.csv, or a list of IMAGE CLASS",
         file.path);
  }
  if (lines.size() != unlabelled.images.size()) {
    fail(ExitStatus::bad_input,
         "{} has {} labels for {} images (a line for each, in the order of their names); check the "
         "file, or copy the images again",
         file.path, lines.size(), unlabelled.images.size());
  }
  std::vector<std::int32_t> labels;
  for (const Line& line : lines) {
    const auto found = unlabelled.class_ids->find(*number_in(line.text));
    if (found == unlabelled.class_ids->end()) {
      fail(ExitStatus::bad_input,
           "{}: line {} is the class {}, which --class-ids lacks; check both", file.path,
           line.number, line.text);
    }
    auto index = index_of(found->second, unlabelled.classes);
    if (!index) index = index_of(first_word(found->second), unlabelled.classes);
    if (!index) {
      fail(ExitStatus::bad_input,
           "{}: line {} is {}, by --class-ids class {} (not one of the {} training classes); check "
           "both",
           file.path, line.number, line.text, found->second, unlabelled.classes.size());
    }
    labels.push_back(*index);
  }
  return labels;
}

}  // namespace

NamedText read_text(const std::string& path) {
  return {.path = path, .text = read_text_file(path)};
}

ClassIds parse_class_ids(const NamedText& file) {
  ClassIds ids;
  for (const Line& line : lines_of(file)) {
    const Fields fields = split_first(file, line, "ID CLASS, such as '1 n02119789'");
    const auto id = number_in(fields.first);
    if (!id || !ids.emplace(*id, fields.second).second) {
      fail(ExitStatus::bad_input, "{}: line {} begins with {} ({}); check the file", file.path,
           line.number, fields.first,
           id ? "an earlier line does too" : "lines are ID CLASS, such as '1 n02119789'");
    }
  }
  return ids;
}

std::vector<std::int32_t> parse_labels(const NamedText& file, const Unlabelled& unlabelled) {
  const std::vector<Line> lines = lines_of(file);
  if (std::all_of(lines.begin(), lines.end(),
                  [](const Line& line) { return number_in(line.text).has_value(); })) {
    return labels_by_order(file, lines, unlabelled);
  }
  if (unlabelled.class_ids != nullptr) {
    fail(ExitStatus::usage,
         "--class-ids with {} (it names images and classes, and --class-ids is for files of "
         "numbers); drop --class-ids",
         file.path);
  }
  return labels_by_name(file, lines, unlabelled);
}

std::vector<std::int32_t> read_labels(const LabelPaths& paths, std::span<const std::string> images,
                                      std::span<const std::string> classes) {
  Unlabelled unlabelled{.images = images, .classes = classes};
  ClassIds ids;
  if (!paths.class_ids.empty()) {
    ids = parse_class_ids(read_text(paths.class_ids));
    unlabelled.class_ids = &ids;
  }
  return parse_labels(read_text(paths.labels), unlabelled);
}

std::vector<ClassName> parse_class_names(const NamedText& file) {
  std::vector<ClassName> names;
  std::unordered_map<std::string_view, std::int64_t> seen;
  for (const Line& line : lines_of(file)) {
    const Fields fields = split_first(file, line, class_name_lines);
    const auto [earlier, is_new] = seen.emplace(fields.first, line.number);
    if (!is_new) {
      fail(ExitStatus::bad_input, "{}: line {} names {}, as line {} does; keep one of the lines",
           file.path, line.number, fields.first, earlier->second);
    }
    names.push_back({.id = std::string(fields.first), .name = std::string(fields.second)});
  }
  return names;
}

std::vector<std::string> names_of(std::span<const std::string> classes, const NamedText& file) {
  std::unordered_map<std::string_view, std::string_view> known;
  const std::vector<Line> lines = lines_of(file);
  for (const Line& line : lines) {
    Fields fields = split_first(file, line, class_name_lines);
    // A class may have blanks: the longest one with which the line begins.
    for (std::size_t at = line.text.find_last_of(separators);
         at != std::string_view::npos && at > 0; at = line.text.find_last_of(separators, at - 1)) {
      const std::string_view id = field(line.text.substr(0, at));
      const std::string_view name = field(line.text.substr(at));
      if (name.empty() || !index_of(id, classes)) continue;
      fields = {.first = id, .second = name};
      break;
    }
    if (!known.emplace(fields.first, fields.second).second) {
      fail(ExitStatus::bad_input, "{}: line {} names {}, as an earlier line does; keep one of them",
           file.path, line.number, fields.first);
    }
  }
  std::vector<std::string> names;
  for (const std::string& id : classes) {
    const auto found = known.find(id);
    if (found == known.end()) {
      fail(ExitStatus::bad_input,
           "{} does not name class {} (each of the {} classes needs a line); add it", file.path, id,
           classes.size());
    }
    names.emplace_back(found->second);
  }
  return names;
}

}  // namespace lockstep
