#pragma once

#include "lockstep/config/option_value.hpp"

#include <functional>
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
};

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
/// Error(usage) for unknown options (with the nearest known one), missing values and repetitions.
[[nodiscard]] TokenizedOptions tokenize_command_line(const std::vector<std::string>& args,
                                                     const std::vector<OptionName>& known,
                                                     bool allow_positional);
/// Parses the text of an INI file whose keys are option names; `source` names it in errors.
[[nodiscard]] std::vector<GivenOption> tokenize_config(const std::string& text,
                                                       const std::vector<OptionName>& known,
                                                       const std::string& source);

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
    entries_.push_back({.spec = {.name = "", .help = title, .unit = ""},
                        .is_switch = false,
                        .is_integer = false,
                        .set = {},
                        .get = {}});
    return *this;
  }

  template <typename T>
  OptionTable& add(T Struct::*member, OptionSpec spec) {
    Entry entry{.spec = spec,
                .is_switch = std::is_same_v<T, bool>,
                .is_integer = std::is_same_v<T, std::int64_t>,
                .set = {},
                .get = {}};
    if constexpr (std::is_enum_v<T>) {
      entry.set = [member, spec](Struct& target, const std::string& text) {
        target.*member = static_cast<T>(parse_choice(spec, text));
      };
      entry.get = [member, spec](const Struct& source) {
        return spec.choices[static_cast<std::size_t>(source.*member)];
      };
    } else {
      entry.set = [member, spec](Struct& target, const std::string& text) {
        parse_option(spec, text, target.*member);
      };
      entry.get = [member, spec](const Struct& source) {
        return print_option(spec, source.*member);
      };
    }
    entries_.push_back(std::move(entry));
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
      pair.both = [one = find(pair.one).get, other = find(pair.other).get](const Struct& source) {
        return one(source) != one(Struct{}) && other(source) != other(Struct{});
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
    find(option.name).set(target, option.value);
  }
  void reset(Struct& target, const std::string& name) const {
    const Entry& entry = find(name);
    entry.set(target, entry.get(Struct{}));
  }
  [[nodiscard]] std::string get(const Struct& source, const std::string& name) const {
    return find(name).get(source);
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

  [[nodiscard]] std::string help() const {
    const Struct defaults{};
    std::vector<HelpEntry> lines;
    for (const Entry& entry : entries_) {
      const OptionSpec& spec = entry.spec;
      if (spec.name.empty()) {
        lines.push_back({.left = "", .right = spec.help});
        continue;
      }
      const std::string allowed =
          entry.is_switch ? std::string() : allowed_values(spec, entry.is_integer);
      std::string text = spec.help;
      if (!allowed.empty()) text += "; " + allowed;
      if (!spec.unit.empty()) text += "; in " + spec.unit;
      const std::string value = entry.get(defaults);
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
                                      : entry.spec.name + "=" + entry.get(source) + "\n";
    }
    return text;
  }

 private:
  struct Entry {
    OptionSpec spec;
    bool is_switch;
    bool is_integer;
    std::function<void(Struct&, const std::string&)> set;
    std::function<std::string(const Struct&)> get;
  };

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
