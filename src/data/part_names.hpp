#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The place of a part's name in the order of preference, any capitals: train, training; and val,
/// valid, validation, dev, test, testing. nullopt for other names.
[[nodiscard]] std::optional<int> training_part(std::string_view name);
[[nodiscard]] std::optional<int> evaluation_part(std::string_view name);

/// The last word of a name that is a part's, in lower case, as "val" of "train-cars-val-0.tar";
/// empty if none is.
[[nodiscard]] std::string part_word_in(std::string_view name);

/// The first name with a word of a training part, and the first with one of an evaluation part, as
/// seg_train and seg_test; empty if there is none.
struct LikeParts {
  std::string train;
  std::string val;
};
[[nodiscard]] LikeParts like_parts(std::span<const std::string> names);

/// Which of an input's names are its parts, and the names of other evaluation parts: only one part
/// becomes split val.
struct PartNames {
  std::optional<std::string> train;
  std::optional<std::string> val;
  std::vector<std::string> unused;

  /// "valid becomes split val; test is left out"; empty unless there is a choice to tell.
  [[nodiscard]] std::string note() const;
};

/// Error(bad_input) if two names mean the same part, as train and Training or val and Val. `where`
/// is the path of what holds them, for the message.
[[nodiscard]] PartNames find_parts(const std::string& where, std::span<const std::string> names);

}  // namespace lockstep
