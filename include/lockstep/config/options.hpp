#pragma once

#include "lockstep/config/config.hpp"

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

template <typename Struct>
class OptionTable;

/// Returns a file's text; empty: read_text_file().
using FileReader = std::function<std::string(const std::string& path)>;

/// The declaration of every option of `lockstep train`.
[[nodiscard]] const OptionTable<Config>& train_options();

struct ParsedCommand {
  Config config;
  std::set<std::string> given;         ///< option names given on the command line or in the file
  std::set<std::string> only_on_line;  ///< not in the file, whose values the line may set back
  bool print_config = false;
};

/// Parses the arguments after `lockstep train`: command line over --config file over default.
[[nodiscard]] ParsedCommand parse_train_options(const std::vector<std::string>& args,
                                                const FileReader& read = {});

/// The options that most runs need first, or all.
enum class HelpDetail { first, all };
[[nodiscard]] std::string train_help(HelpDetail detail);
/// The defaults of an optimizer, as PyTorch's for adam and adamw, and timm's for lamb and lion.
[[nodiscard]] Config default_config(OptimizerKind optimizer);
/// Text of a file for --config that parses to the same struct.
[[nodiscard]] std::string print_config(const Config& config);
[[nodiscard]] Config parse_config_text(const std::string& text);

struct ConfigDifference {
  std::string name;
  std::string left;
  std::string right;
};
[[nodiscard]] std::vector<ConfigDifference> differences(const Config& left, const Config& right);

/// "auto", "direct", "winograd"
[[nodiscard]] std::string_view to_string(ConvAlgorithm algorithm) noexcept;
/// Error(usage) if --conv-algorithm does not support the precision or device.
void require_conv_algorithm(ConvAlgorithm algorithm, Precision precision, DeviceChoice device);

/// "auto", "none", "norms"
[[nodiscard]] std::string_view to_string(Recompute recompute) noexcept;
/// Error(usage) if --recompute does not support the device.
void require_recompute(Recompute recompute, DeviceChoice device);

/// Error(usage) for invalid combinations of options, with their values.
void validate(const Config& config);
/// The part of validate() for param_dtype, reduce_dtype and grad_compression.
void validate_communication_dtypes(const Config& config);

}  // namespace lockstep
