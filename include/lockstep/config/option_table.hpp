#pragma once

#include "lockstep/config/option_value.hpp"

#include <algorithm>
#include <concepts>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// One option as given, in the order given; bools are already `true` or `false`.
struct GivenOption {
  std::string name;
  std::string value;
  std::size_t part = 0;  ///< of the command line: number of markers before it
};

/// Options after this word replace those of the same name before it.
inline constexpr const char* override_marker = "--override";

/// The command line's options and arguments before they are matched to a struct's members.
struct TokenizedOptions {
  std::vector<GivenOption> options;
  std::vector<std::string> positional;
};

struct OptionName {
  std::string name;
  bool is_switch = false;  ///< `--x`, `--no-x`, `--x=true|false`
};

/// Uses Boost.Program_options: `--name value`, `--name=value`, switches. No abbreviations.
/// Error(usage) for unknown options (with the nearest known one), missing values and repetitions
/// without override_marker between them.
[[nodiscard]] TokenizedOptions tokenize_command_line(const std::vector<std::string>& args,
                                                     const std::vector<OptionName>& known,
                                                     bool allow_positional);
/// Parses the text of an INI file whose keys are option names; `source` names it in errors.
[[nodiscard]] std::vector<GivenOption> tokenize_config(const std::string& text,
                                                       const std::vector<OptionName>& known,
                                                       const std::string& source);

/// An option declared in another table, and how it differs here.
struct SharedOption {
  std::string name;
  std::string help = {};           ///< empty: as declared
  std::optional<double> min = {};  ///< nullopt: as declared
};

/// One aligned entry of --help.
struct HelpEntry {
  std::string left;   ///< "--lr FLOAT"; empty: a group's title in `right`
  std::string right;  ///< help, range, default
};
[[nodiscard]] std::string format_help(const std::vector<HelpEntry>& entries);

/// The single declaration of a struct's options: the source of command line, config file, help,
/// printing and comparison. Each member is declared once.
template <typename Struct>
class OptionTable final {
 public:
  OptionTable& group(const std::string& title) {
    entries_.push_back(
        {.spec = {.help = title}, .is_switch = false, .is_integer = false, .set = {}, .get = {}});
    return *this;
  }

  /// `member` may be of a base of the struct, here and below.
  template <typename T, typename Owner>
  OptionTable& add(T Owner::*member, const OptionSpec& spec) {
    entries_.push_back(
        {.spec = spec,
         .is_switch = std::is_same_v<T, bool>,
         .is_integer = std::is_same_v<T, std::int64_t>,
         .set =
             [member](const OptionSpec& own, Struct& target, const std::string& text) {
               if constexpr (std::is_enum_v<T>) {
                 target.*member = static_cast<T>(parse_choice(own, text));
               } else {
                 parse_option(own, text, target.*member);
               }
             },
         .get =
             [member](const OptionSpec& own, const Struct& source) {
               if constexpr (std::is_enum_v<T>) {
                 return own.choices[static_cast<std::size_t>(source.*member)];
               } else {
                 return print_option(source.*member);
               }
             }});
    return *this;
  }

  /// The same; `spec` is what else there is to say than name and help.
  template <typename T, typename Owner, std::convertible_to<std::string> Text>
  OptionTable& add(T Owner::*member, const char* name, const Text& help, OptionSpec spec = {}) {
    spec.name = name;
    spec.help = help;
    return add(member, spec);
  }

  /// Adds an enum's option that also takes the word `absent`, for nullopt; or a switch, which is
  /// nullopt unless it is given.
  template <typename T, typename Owner>
  OptionTable& add(std::optional<T> Owner::*member, const std::string& absent, OptionSpec spec) {
    constexpr bool is_switch = std::is_same_v<T, bool>;
    const std::vector<std::string> values =
        is_switch ? std::vector<std::string>{"false", "true"} : spec.choices;
    spec.choices = values;
    spec.choices.insert(spec.choices.begin(), absent);
    entries_.push_back({.spec = std::move(spec),
                        .is_switch = is_switch,
                        .is_integer = false,
                        .set =
                            [=](const OptionSpec& own, Struct& target, const std::string& text) {
                              static_cast<void>(parse_choice(own, text));
                              const auto found = std::find(values.begin(), values.end(), text);
                              target.*member =
                                  found == values.end()
                                      ? std::nullopt
                                      : std::optional<T>(static_cast<T>(found - values.begin()));
                            },
                        .get =
                            [=](const OptionSpec&, const Struct& source) {
                              const std::optional<T>& value = source.*member;
                              return value ? values[static_cast<std::size_t>(*value)] : absent;
                            }});
    return *this;
  }

  /// Adds options that `table` declares, over the struct's `part`.
  template <typename Part>
  OptionTable& add(Part Struct::*part, const OptionTable<Part>& table,
                   const std::vector<SharedOption>& options) {
    for (const SharedOption& option : options) {
      const auto& declared = table.find(option.name);
      entries_.push_back({.spec = table.shared_spec(option),
                          .is_switch = declared.is_switch,
                          .is_integer = declared.is_integer,
                          .set = [part, set = declared.set](
                                     const OptionSpec& own, Struct& target,
                                     const std::string& text) { set(own, target.*part, text); },
                          .get = [part, get = declared.get](
                                     const OptionSpec& own,
                                     const Struct& source) { return get(own, source.*part); }});
    }
    return *this;
  }

  /// Two options that exclude each other. `both` returns whether a struct sets both; by default,
  /// whether both members differ from their defaults. Either one on the command line replaces the
  /// other one from the file.
  struct ExclusivePair {
    std::string one;
    std::string other;
    std::function<bool(const Struct&)> both;
  };
  OptionTable& exclusive(ExclusivePair pair) {
    if (!pair.both) {
      pair.both = [one = find(pair.one), other = find(pair.other)](const Struct& source) {
        return one.print(source) != one.print({}) && other.print(source) != other.print({});
      };
    }
    exclusive_.push_back(std::move(pair));
    return *this;
  }

  [[nodiscard]] std::vector<OptionName> names() const {
    std::vector<OptionName> result;
    for (const Entry& entry : entries_) {
      if (!entry.spec.name.empty()) result.push_back({entry.spec.name, entry.is_switch});
    }
    return result;
  }

  void set(Struct& target, const GivenOption& option) const {
    find(option.name).parse(target, option.value);
  }
  void reset(Struct& target, const std::string& name) const {
    const Entry& entry = find(name);
    entry.parse(target, entry.print({}));
  }
  [[nodiscard]] std::string get(const Struct& source, const std::string& name) const {
    return find(name).print(source);
  }
  [[nodiscard]] const OptionSpec& spec(const std::string& name) const { return find(name).spec; }
  /// As a table that shares the option has it.
  [[nodiscard]] OptionSpec shared_spec(const SharedOption& option) const {
    OptionSpec spec = find(option.name).spec;
    if (!option.help.empty()) spec.help = option.help;
    spec.min = option.min.value_or(spec.min);
    return spec;
  }
  [[nodiscard]] const std::vector<ExclusivePair>& exclusive_pairs() const { return exclusive_; }
  /// Error(usage) if a member's value is not valid for its option. parse() never returns such a
  /// struct, but code can make one.
  void check_values(const Struct& source) const {
    Struct copy = source;
    for (const OptionName& option : names()) set(copy, {option.name, get(source, option.name)});
  }

  struct Parsed {
    Struct value;
    std::set<std::string> given;
    std::vector<std::string> positional;
  };
  /// Parses a command line only, for commands without a config file.
  [[nodiscard]] Parsed parse(const std::vector<std::string>& args,
                             bool allow_positional = false) const {
    const TokenizedOptions tokens = tokenize_command_line(args, names(), allow_positional);
    Parsed parsed{.value = {}, .given = {}, .positional = tokens.positional};
    for (const GivenOption& option : tokens.options) {
      set(parsed.value, option);
      parsed.given.insert(option.name);
    }
    return parsed;
  }

  /// `shown`: only these options, without groups; empty: all.
  [[nodiscard]] std::string help(const std::set<std::string>& shown = {}) const {
    const Struct defaults{};
    std::vector<HelpEntry> lines;
    for (const Entry& entry : entries_) {
      const OptionSpec& spec = entry.spec;
      if (!shown.empty() && !shown.contains(spec.name)) continue;
      if (spec.name.empty()) {
        lines.push_back({.left = "", .right = spec.help});
        continue;
      }
      const std::string allowed =
          entry.is_switch ? std::string() : allowed_values(spec, entry.is_integer);
      std::string text = spec.help;
      if (!allowed.empty()) text += "; " + allowed;
      if (!spec.unit.empty()) text += "; in " + spec.unit;
      const std::string value = spec.defaults.empty() ? entry.print(defaults) : spec.defaults;
      text += " [" + (value.empty() ? std::string("none") : value) + "]";
      lines.push_back({.left = (entry.is_switch ? "--[no-]" : "--") + spec.name, .right = text});
    }
    return format_help(lines);
  }

  /// INI text that parses to the same struct.
  [[nodiscard]] std::string print(const Struct& source) const {
    std::string text;
    for (const Entry& entry : entries_) {
      text += entry.spec.name.empty() ? "\n# " + entry.spec.help + "\n"
                                      : entry.spec.name + "=" + entry.print(source) + "\n";
    }
    return text;
  }

 private:
  struct Entry {
    OptionSpec spec;
    bool is_switch;
    bool is_integer;
    std::function<void(const OptionSpec&, Struct&, const std::string&)> set;
    std::function<std::string(const OptionSpec&, const Struct&)> get;

    void parse(Struct& target, const std::string& text) const { set(spec, target, text); }
    [[nodiscard]] std::string print(const Struct& source) const { return get(spec, source); }
  };
  template <typename Other>
  friend class OptionTable;  // for find()

  [[nodiscard]] const Entry& find(const std::string& name) const {
    for (const Entry& entry : entries_) {
      if (entry.spec.name == name) return entry;
    }
    return entries_.front();  // tokenizing rejects unknown names
  }

  std::vector<Entry> entries_;
  std::vector<ExclusivePair> exclusive_;
};

}  // namespace lockstep
