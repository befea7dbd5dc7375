#include "lockstep/config/options.hpp"

#include "lockstep/config/option_conditions.hpp"
#include "lockstep/config/option_table.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/text_file.hpp"
#include "option_groups.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

const std::string config_option = "config";
const std::string print_option_name = "print-config";

Config parse_file(const std::string& text, const std::string& source,
                  std::set<std::string>& given) {
  const OptionTable<Config>& table = train_options();
  Config config;
  for (const GivenOption& option : tokenize_config(text, table.names(), source)) {
    try {
      table.set(config, option);
    } catch (const Error& error) {
      throw Error(error.status(), fmt::format("{}: {}", source, error.what()));
    }
    given.insert(option.name);
  }
  return config;
}

/// Sets the options of one part of the command line. Of an exclusive pair, the part's option
/// replaces the other one of the earlier `sources`; the last of these gets the part's names.
void override_options(Config& config, const std::vector<GivenOption>& part,
                      const std::array<std::set<std::string>*, 2>& sources) {
  const OptionTable<Config>& table = train_options();
  Config alone;
  std::set<std::string> names;
  for (const GivenOption& option : part) {
    table.set(alone, option);
    table.set(config, option);
    names.insert(option.name);
  }
  refuse_both(alone, "");
  for (const auto& pair : table.exclusive_pairs()) {
    if (!pair.both(config)) continue;
    // No part sets both, so exactly one is from an earlier source.
    const std::string& earlier = names.contains(pair.one) ? pair.other : pair.one;
    table.reset(config, earlier);
    for (std::set<std::string>* source : sources) source->erase(earlier);
  }
  sources.back()->insert(names.begin(), names.end());
}

}  // namespace

ParsedCommand parse_train_options(const std::vector<std::string>& args, const FileReader& read) {
  const OptionTable<Config>& table = train_options();
  std::vector<OptionName> known = table.names();
  known.push_back({config_option, false});
  known.push_back({print_option_name, true});
  std::vector<GivenOption> line = tokenize_command_line(args, known, false).options;

  ParsedCommand command;
  std::string file;
  std::set<std::string> in_file;
  std::erase_if(line, [&](const GivenOption& option) {
    if (option.name == config_option) file = option.value;
    if (option.name == print_option_name) command.print_config = option.value == "true";
    return option.name == config_option || option.name == print_option_name;
  });
  if (!file.empty()) {
    command.config = parse_file(read ? read(file) : read_text_file(file), file, in_file);
    refuse_both(command.config, " in " + file);
  }
  std::set<std::string> on_line;
  for (auto part = line.begin(); part != line.end();) {
    const auto end = std::find_if(
        part, line.end(), [&](const GivenOption& option) { return option.part != part->part; });
    override_options(command.config, {part, end}, {&in_file, &on_line});
    part = end;
  }
  command.given = in_file;
  command.given.insert(on_line.begin(), on_line.end());
  const Config defaults = default_config(command.config.optimizer);
  for (const char* name : {"lr", "weight-decay", "beta2", "eps", "clip-grad-norm"}) {
    if (command.given.contains(name)) continue;
    table.set(command.config, {name, table.get(defaults, name)});
  }
  std::erase_if(on_line, [&](const std::string& name) { return in_file.contains(name); });
  command.only_on_line = std::move(on_line);
  return command;
}

Config default_config(OptimizerKind optimizer) {
  Config config;
  config.optimizer = optimizer;
  const OptimizerTraits& traits = traits_of(optimizer);
  config.lr = traits.lr;
  config.weight_decay = traits.weight_decay;
  config.beta2 = traits.beta2;
  config.eps = traits.eps;
  config.clip_grad_norm = traits.clip_grad_norm;
  return config;
}

std::string train_help(HelpDetail detail) {
  const OptionTable<Config>& table = train_options();
  std::string text =
      "usage: lockstep train --data DIR [options]\n\nTrains a network. The same command resumes "
      "where an earlier job stopped.\n\n"
      "  --config FILE   read options from a file, one name=value a line; the command line "
      "overrides it\n"
      "  --print-config  print the configuration as such a file, and exit\n"
      "  --override      options after this word replace those of the same name before it\n";
  if (detail == HelpDetail::all) return text + table.help();
  const std::set<std::string> first{"model",     "data", "synthetic", "epochs", "batch-size",
                                    "precision", "lr",   "run-dir",   "device", "save-every"};
  return text + "\n" + table.help(first) +
         fmt::format(
             "\nlockstep train --help all shows {} more: augmentation, schedules, sharding, "
             "reductions, ...\n"
             "lockstep pack creates DIR from images. Without data: lockstep train --synthetic\n",
             table.names().size() - first.size());
}

std::string print_config(const Config& config) {
  return train_options().print(config);
}

Config parse_config_text(const std::string& text) {
  std::set<std::string> given;
  return parse_file(text, "the stored configuration", given);
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

}  // namespace lockstep
