#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// The class names of a network or a data set.
struct ClassNames {
  std::string of;                  ///< for messages: "w.h5", "split val of data"
  std::vector<std::string> names;  ///< by number; empty: unknown
};

/// The network's output for each label of a data set; empty: the label itself.
using ClassNumbering = std::vector<std::int64_t>;

/// What a network that knows classes is to do with the labels of other data.
enum class ClassUse {
  evaluation,       ///< some of the classes are enough
  initial_weights,  ///< train on, from these weights with their head
  resume            ///< continue a run
};

struct ClassMatch {
  ClassNumbering numbering;
  std::string note;  ///< for the user; empty: nothing to say
};
/// Matches classes by name. Equal lists, also with duplicates, need no numbering; without the names
/// of one side, numbers are taken as equal, with a note. Error(bad_input) if the data has a class
/// that the network has not, or in training the other way round; or if a name that must be matched
/// is empty or names several classes.
[[nodiscard]] ClassMatch match_classes(const ClassNames& network, const ClassNames& data,
                                       ClassUse use);

/// The name in quotes, for a message: on one line, and shortened.
[[nodiscard]] std::string quoted_class(const std::string& name);

/// The names, with \xHH for bytes in those that are not UTF-8: they come from files, and two names
/// that differ must stay different.
[[nodiscard]] std::vector<std::string> as_utf8(const std::vector<std::string>& names);

}  // namespace lockstep
