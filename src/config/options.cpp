#include "lockstep/config/options.hpp"

#include "lockstep/core/error.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

const std::string config_option = "config";
const std::string print_option_name = "print-config";

/// Both of an exclusive pair from one source cannot hold.
void refuse_both(const OptionTable<Config>& table, const std::vector<GivenOption>& given,
                 const std::string& where) {
  const auto find = [&](const std::string& name) {
    return std::find_if(given.begin(), given.end(),
                        [&](const GivenOption& option) { return option.name == name; });
  };
  for (const auto& [one, other] : table.exclusive_pairs()) {
    const auto left = find(one);
    const auto right = find(other);
    if (left == given.end() || right == given.end()) continue;
    // The default written out, as --print-config does, asks for nothing.
    const Config defaults;
    if (left->value == table.get(defaults, one) || right->value == table.get(defaults, other))
      continue;
    fail(ExitStatus::usage,
         "--{} {} and --{} {} are both given{} (each excludes the other) drop one", one,
         left->value, other, right->value, where);
  }
}

}  // namespace

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    if (file && file.peek() == std::ifstream::traits_type::eof()) return {};
    fail(ExitStatus::no_input, "cannot read {} ({}) check the path", path, std::strerror(errno));
  }
  return text.str();
}

ParsedCommand parse_train_options(const std::vector<std::string>& args, const FileReader& read) {
  const OptionTable<Config>& table = train_options();
  std::vector<OptionName> known = table.names();
  known.push_back({config_option, false});
  known.push_back({print_option_name, true});
  std::vector<GivenOption> line = tokenize_command_line(args, known, false).options;

  ParsedCommand command;
  std::string file;
  std::erase_if(line, [&](const GivenOption& option) {
    if (option.name == config_option) file = option.value;
    if (option.name == print_option_name) command.print_config = option.value == "true";
    return option.name == config_option || option.name == print_option_name;
  });
  if (!file.empty()) {
    const auto given = tokenize_config(read(file), table.names(), file);
    refuse_both(table, given, " in " + file);
    for (const GivenOption& option : given) {
      table.set(command.config, option);
      command.given.insert(option.name);
    }
  }
  refuse_both(table, line, "");
  for (const GivenOption& option : line) {
    for (const auto& [one, other] : table.exclusive_pairs()) {
      if (option.name == one) table.reset(command.config, other);
      if (option.name == other) table.reset(command.config, one);
    }
  }
  for (const GivenOption& option : line) {
    table.set(command.config, option);
    command.given.insert(option.name);
  }
  return command;
}

std::string train_help() {
  return "lockstep train --data DIR [options]: train; goes on by itself where it stopped\n\n"
         "  --config FILE   options from a file, one name=value a line; the command line goes "
         "before it\n"
         "  --print-config  print the configuration as such a file, and do nothing\n" +
         train_options().help();
}

std::string print_config(const Config& config) {
  return train_options().print(config);
}

Config parse_config_text(const std::string& text) {
  Config config;
  for (const GivenOption& option :
       tokenize_config(text, train_options().names(), "the stored configuration")) {
    train_options().set(config, option);
  }
  return config;
}

std::vector<ConfigDifference> differences(const Config& left, const Config& right) {
  std::vector<ConfigDifference> result;
  for (const OptionName& option : train_options().names()) {
    const std::string a = train_options().get(left, option.name);
    const std::string b = train_options().get(right, option.name);
    if (a != b) result.push_back({.name = option.name, .left = a, .right = b});
  }
  return result;
}

void validate(const Config& config) {
  if (config.data.empty() && !config.synthetic) {
    fail(ExitStatus::usage, "no data (neither --data nor --synthetic is given) give --data DIR");
  }
  if (!config.data.empty() && config.synthetic) {
    fail(ExitStatus::usage,
         "--data {} and --synthetic exclude each other (one is trained on) drop one", config.data);
  }
  if (config.nesterov && (config.momentum == 0 || config.optimizer != OptimizerKind::sgd)) {
    fail(ExitStatus::usage, "--nesterov needs --optimizer sgd with momentum (momentum is {})",
         config.momentum);
  }
  if (config.lr_schedule == LrSchedule::step && config.milestones.empty()) {
    fail(ExitStatus::usage,
         "--lr-schedule step needs --milestones (at which epochs the rate falls)");
  }
  if (config.lr_schedule != LrSchedule::step && !config.milestones.empty()) {
    fail(ExitStatus::usage,
         "--milestones {} belong to --lr-schedule step (the schedule is another) add it, or drop "
         "them",
         fmt::join(config.milestones, ","));
  }
  if (!std::is_sorted(config.milestones.begin(), config.milestones.end())) {
    fail(ExitStatus::usage, "--milestones {} are not ascending", fmt::join(config.milestones, ","));
  }
  if (config.warmup_epochs > static_cast<double>(config.epochs)) {
    fail(ExitStatus::usage, "--warmup-epochs {} is longer than the {} epochs of --epochs",
         config.warmup_epochs, config.epochs);
  }
  if (config.init_head == InitHead::fresh && config.init_from.empty()) {
    fail(ExitStatus::usage, "--init-head new needs --init-from (there is no head to replace)");
  }
}

}  // namespace lockstep
