#include "lockstep/report/sweep.hpp"

#include "lockstep/config/option_conditions.hpp"
#include "lockstep/config/option_table.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/io/sha256.hpp"
#include "lockstep/report/comparison.hpp"
#include "lockstep/report/run_record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <sstream>

namespace lockstep::report {
namespace {

constexpr std::size_t longest_name = 200;  // a file's name has at most 255 bytes
constexpr std::size_t cut_name = 190;
constexpr std::size_t checksum_digits = 8;

bool is_kept(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '+' || c == '_' || c == '-';
}

std::string directory_of(const Config& config) {
  return config.run_dir.empty() ? "runs/" + config.model : config.run_dir;
}

ParsedCommand parse_whole(const std::vector<std::string>& arguments, const FileReader& read) {
  ParsedCommand command = parse_train_options(arguments, read);
  require_effects(command.config, command.only_on_line);
  validate(command.config);
  return command;
}

/// Error(usage) if a line has a word that is for the command line of the sweep only.
void refuse_words_of_sweeps(const std::vector<std::string>& words, const std::string& line,
                            const std::string& file) {
  for (const std::string& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (name != "--run-dir" && name != "--print-config" && name != override_marker) continue;
    fail(ExitStatus::usage,
         "'{}' in {} sets {} (each run of a sweep gets a folder in the --run-dir of all, and its "
         "line overrides their options); remove it",
         line, file, name);
  }
}

}  // namespace

std::vector<std::string> sweep_lines(const std::string& text, const std::string& file) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    const std::size_t first = line.find_first_not_of(" \t\v\f\r");
    if (first != std::string::npos && line[first] != '#') lines.push_back(line);
  }
  if (lines.empty()) {
    fail(ExitStatus::bad_input, "no options in {} (it has one line for each run); write some",
         file);
  }
  return lines;
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  constexpr std::string_view blanks = " \t";
  for (std::size_t begin = line.find_first_not_of(blanks); begin != std::string_view::npos;) {
    const std::size_t end = line.find_first_of(blanks, begin);
    words.emplace_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(blanks, end);
  }
  return words;
}

std::string sweep_name(const std::vector<std::string>& words) {
  std::vector<std::string> options;
  for (std::string word : words) {
    if (!options.empty() && !word.starts_with("--")) {
      options.back() += "-" + word;
      continue;
    }
    if (word.starts_with("--")) word.erase(0, 2);
    if (const std::size_t equals = word.find('='); equals != std::string::npos) word[equals] = '-';
    options.push_back(word);
  }
  std::ranges::sort(options);
  std::string whole = fmt::format("{}", fmt::join(options, "_"));
  if (whole.size() <= longest_name && std::ranges::all_of(whole, is_kept)) return whole;
  std::string name = whole.substr(0, cut_name);
  std::ranges::replace_if(
      name, [](char c) { return !is_kept(c); }, '-');
  return name + "-" + sha256_of(whole + "\n").substr(0, checksum_digits);
}

Sweep plan_sweep(std::span<const std::string> lines, const std::string& file,
                 const std::vector<std::string>& common, const FileReader& read) {
  Sweep sweep{.directory = directory_of(parse_train_options(common, read).config), .runs = {}};
  std::map<std::string, std::string> lines_of;  // by name, and by configuration
  for (const std::string& line : lines) {
    const std::vector<std::string> words = words_of(line);
    refuse_words_of_sweeps(words, line, file);
    SweepRun run{.line = line, .arguments = common, .directory = {}, .configuration = {}};
    run.arguments.emplace_back(override_marker);
    run.arguments.insert(run.arguments.end(), words.begin(), words.end());
    Config config;
    try {
      config = parse_whole(run.arguments, read).config;
    } catch (const Error& error) {
      throw Error(error.status(),
                  fmt::format("'{}' in {} cannot be trained with: {}", line, file, error.what()));
    }
    const std::string name = sweep_name(words);
    for (const std::string& key : {name, print_config(config)}) {
      const auto [same, is_new] = lines_of.emplace(key, line);
      if (is_new) continue;
      fail(ExitStatus::bad_input, "two lines of {} are the same run ('{}' and '{}'); remove one",
           file, same->second, line);
    }
    run.directory = (std::filesystem::path(directory_of(config)) / name).string();
    run.arguments.insert(run.arguments.end(), {override_marker, "--run-dir=" + run.directory});
    run.configuration = print_config(config);
    sweep.runs.push_back(std::move(run));
  }
  return sweep;
}

namespace {

/// Whether a run's record has what its data or the sweep gave, and not what its options said.
bool is_of_data(const std::string& name) {
  constexpr std::array names{"run-dir", "val-data", "channels", "classes", "mean", "std"};
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

SweepState state_of(const SweepRun& run) {
  constexpr std::size_t bins = 500;
  try {
    const RunRecord record = read_run(run.directory, bins);
    const Figures figures = figures_of(record);
    SweepState state{.finished = figures.status == "finished",
                     .other = {},
                     .status = figures.status,
                     .step = figures.step};
    std::istringstream lines(run.configuration);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t equals = line.find('=');
      if (equals == std::string::npos) continue;
      const std::string name = line.substr(0, equals);
      const std::string was = option_of(record, name);
      if (is_of_data(name) || line.substr(equals + 1) == was) continue;
      // Only these make a run longer.
      if (name == "epochs" || name == "max-steps") state.finished = false;
      state.other += fmt::format("{}{} {}", state.other.empty() ? "" : ", ", name, was);
    }
    return state;
  } catch (const Error&) {
    return {};  // what stands there instead is for training to refuse
  }
}

}  // namespace lockstep::report
