#include "lockstep/config/options.hpp"

#include "fuzz.hpp"

namespace lockstep::fuzz {

/// Parses a config file's text, alone and as --config, and the same lines as a command line. If a
/// text parses, its printed form must parse to the same struct.
void run(Bytes bytes) {
  const std::string text(bytes.begin(), bytes.end());
  accepts([&] {
    const Config config = parse_config_text(text);
    if (!(parse_config_text(print_config(config)) == config)) __builtin_trap();
    accepts([&] { validate(config); });
    if (!differences(config, config).empty()) __builtin_trap();
  });
  const FileReader reader = [&](const std::string&) { return text; };
  accepts([&] { static_cast<void>(parse_train_options({"--config", "input"}, reader)); });
  std::vector<std::string> args;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    args.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  accepts([&] { static_cast<void>(parse_train_options(args, reader)); });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
