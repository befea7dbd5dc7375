#include "lockstep/config/option_table.hpp"
#include "lockstep/core/error.hpp"

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include <algorithm>
#include <sstream>

namespace lockstep {
namespace {

namespace po = boost::program_options;

po::options_description describe(const std::vector<OptionName>& known) {
  po::options_description description;
  for (const OptionName& option : known) {
    description.add_options()(option.name.c_str(), po::value<std::string>());
  }
  return description;
}

const OptionName* find(const std::vector<OptionName>& known, std::string_view name) {
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const OptionName& option) { return option.name == name; });
  return found == known.end() ? nullptr : &*found;
}

[[noreturn]] void refuse_unknown(const std::string& name, const std::vector<OptionName>& known,
                                 const std::string& where) {
  std::vector<std::string> names;
  names.reserve(known.size());
  for (const OptionName& option : known) names.push_back(option.name);
  const std::string nearest = nearest_name(name, names);
  fail(ExitStatus::usage, "unknown option --{}{} (there is no such option); {}", name, where,
       nearest.empty() ? std::string("see --help") : fmt::format("did you mean --{}?", nearest));
}

/// Turns `--x` and `--no-x` into `--x=true` and `--x=false`, so that every option has a value.
std::vector<std::string> spell_out_switches(const std::vector<std::string>& args,
                                            const std::vector<OptionName>& known) {
  std::vector<std::string> result;
  for (const std::string& arg : args) {
    std::string name = arg.starts_with("--") ? arg.substr(2) : std::string();
    const OptionName* const positive = find(known, name);
    const OptionName* const negative =
        name.starts_with("no-") ? find(known, std::string_view(name).substr(3)) : nullptr;
    if (positive != nullptr && positive->is_switch) {
      result.push_back(arg + "=true");
    } else if (positive == nullptr && negative != nullptr && negative->is_switch) {
      result.push_back("--" + negative->name + "=false");
    } else {
      result.push_back(arg);
    }
  }
  return result;
}

/// Adds an option. It replaces one of the same name in an earlier part; in the same part, that is
/// refused.
void add(std::vector<GivenOption>& given, GivenOption added) {
  const auto same = std::find_if(given.begin(), given.end(), [&](const GivenOption& option) {
    return option.name == added.name;
  });
  if (same != given.end()) {
    if (same->part == added.part) {
      fail(ExitStatus::usage, "--{} is given twice, as '{}' and '{}' (only one can hold); drop one",
           added.name, same->value, added.value);
    }
    given.erase(same);
  }
  given.push_back(std::move(added));
}

/// Adds the options of one part of a command line.
void tokenize_part(const std::vector<std::string>& args, const std::vector<OptionName>& known,
                   bool allow_positional, std::size_t part, TokenizedOptions& result) {
  namespace style = po::command_line_style;
  const po::options_description description = describe(known);
  po::parsed_options parsed(&description);
  try {
    parsed = po::command_line_parser(spell_out_switches(args, known))
                 .options(description)
                 .style(style::allow_long | style::long_allow_adjacent | style::long_allow_next)
                 .allow_unregistered()
                 .run();
  } catch (const po::error& error) {
    fail(ExitStatus::usage, "{} (the command line does not parse); see --help", error.what());
  }
  for (const po::option& option : parsed.options) {
    const std::string& token =
        option.original_tokens.empty() ? option.string_key : option.original_tokens.front();
    if (option.position_key >= 0 || !token.starts_with("--")) {
      if (!allow_positional) {
        fail(ExitStatus::usage, "'{}' stands alone (an option begins with --); see --help", token);
      }
      result.positional.push_back(option.value.empty() ? token : option.value.front());
      continue;
    }
    if (option.original_tokens.size() > 1 && option.original_tokens[1].starts_with("--")) {
      fail(ExitStatus::usage,
           "{} has no value (the next word, {}, is an option); give one; a value that begins with "
           "-- "
           "is written {}={}",
           token, option.original_tokens[1], token, option.original_tokens[1]);
    }
    if (option.unregistered) {
      refuse_unknown(token.substr(2, token.find('=') - 2), known, "");
    }
    add(result.options, {.name = option.string_key,
                         .value = option.value.empty() ? std::string() : option.value.front(),
                         .part = part});
  }
}

}  // namespace

TokenizedOptions tokenize_command_line(const std::vector<std::string>& args,
                                       const std::vector<OptionName>& known,
                                       bool allow_positional) {
  TokenizedOptions result;
  const auto last = std::find(args.begin(), args.end(), "--");  // only arguments follow it
  auto begin = args.begin();
  for (std::size_t part = 0;; ++part) {
    const auto marker = std::find(begin, last, override_marker);
    const bool is_last = marker == last;
    tokenize_part({begin, is_last ? args.end() : marker}, known, allow_positional, part, result);
    if (is_last) return result;
    begin = marker + 1;
  }
}

std::vector<GivenOption> tokenize_config(const std::string& text,
                                         const std::vector<OptionName>& known,
                                         const std::string& source) {
  const po::options_description description = describe(known);
  std::istringstream stream(text);
  po::parsed_options parsed(&description);
  try {
    parsed = po::parse_config_file(stream, description, true);
  } catch (const po::error& error) {
    fail(ExitStatus::usage, "{} does not parse ({}); write one name=value a line", source,
         error.what());
  }
  std::vector<GivenOption> given;
  for (const po::option& option : parsed.options) {
    if (option.unregistered) refuse_unknown(option.string_key, known, " in " + source);
    add(given, {.name = option.string_key,
                .value = option.value.empty() ? std::string() : option.value.front()});
  }
  return given;
}

std::string format_help(const std::vector<HelpEntry>& entries) {
  constexpr std::size_t columns = 100;
  std::size_t width = 0;
  for (const HelpEntry& entry : entries) width = std::max(width, entry.left.size());
  std::string text;
  for (const HelpEntry& entry : entries) {
    if (entry.left.empty()) {
      text += "\n" + entry.right + ":\n";
      continue;
    }
    std::string line = fmt::format("  {:<{}}  ", entry.left, width);
    std::istringstream words(entry.right);
    bool first = true;
    for (std::string word; words >> word; first = false) {
      if (!first && line.size() + 1 + word.size() > columns) {
        text += line + "\n";
        line = std::string(width + 4, ' ');
        first = true;
      }
      line += (first ? "" : " ") + word;
    }
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep
