#pragma once

#include "lockstep/config/option_types.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// An option's name, help and valid values.
struct OptionSpec {
  std::string name = {};  ///< with hyphens, without the leading two
  std::string help = {};
  std::string unit = {};  ///< "epochs", "MiB"; empty: none
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;                 ///< min itself is excluded
  double other_scale = 100;               ///< values in [0, 1] are also written times this: percent
  std::vector<std::string> choices = {};  ///< names of an enum's values, in order; or valid texts
  std::string defaults = {};              ///< for help, where others than the struct's apply, too
};

/// Convert text to value and back; a value's printed text parses to the same value. Error(usage)
/// names the option, the text and the valid values.
void parse_option(const OptionSpec& spec, const std::string& text, std::string& value);
void parse_option(const OptionSpec& spec, const std::string& text, std::int64_t& value);
void parse_option(const OptionSpec& spec, const std::string& text, double& value);
void parse_option(const OptionSpec& spec, const std::string& text, bool& value);
void parse_option(const OptionSpec& spec, const std::string& text, std::vector<double>& value);
void parse_option(const OptionSpec& spec, const std::string& text, std::vector<std::string>& value);
void parse_option(const OptionSpec& spec, const std::string& text, std::vector<LrScale>& value);
void parse_option(const OptionSpec& spec, const std::string& text, SaveInterval& value);
void parse_option(const OptionSpec& spec, const std::string& text, TimeSpan& value);
void parse_option(const OptionSpec& spec, const std::string& text, ShardUnit& value);
void parse_option(const OptionSpec& spec, const std::string& text, StepRange& value);
void parse_option(const OptionSpec& spec, const std::string& text,
                  std::vector<ImageSizeChange>& value);
[[nodiscard]] std::string print_option(const std::string& value);
[[nodiscard]] std::string print_option(std::int64_t value);
[[nodiscard]] std::string print_option(double value);
[[nodiscard]] std::string print_option(bool value);
[[nodiscard]] std::string print_option(const std::vector<double>& value);
[[nodiscard]] std::string print_option(const std::vector<std::string>& value);
[[nodiscard]] std::string print_option(const std::vector<LrScale>& value);
[[nodiscard]] std::string print_option(const SaveInterval& value);
[[nodiscard]] std::string print_option(const TimeSpan& value);
[[nodiscard]] std::string print_option(const ShardUnit& value);
[[nodiscard]] std::string print_option(const StepRange& value);
[[nodiscard]] std::string print_option(const std::vector<ImageSizeChange>& value);
/// Index of `text` in spec.choices.
[[nodiscard]] std::size_t parse_choice(const OptionSpec& spec, const std::string& text);

/// "a number of at least 0", "one of none, crop-flip": what the spec allows, for help and errors;
/// empty: anything.
[[nodiscard]] std::string allowed_values(const OptionSpec& spec, bool is_integer);

/// The known name nearest to `name`, for "did you mean"; empty if none is near.
[[nodiscard]] std::string nearest_name(std::string_view name,
                                       const std::vector<std::string>& known);

}  // namespace lockstep
