#include "lockstep/config/option_value.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/parse_number.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

namespace lockstep {
namespace {

[[noreturn]] void refuse(const OptionSpec& spec, const std::string& text, const std::string& takes,
                         const std::string& remedy = "see --help") {
  fail(ExitStatus::usage, "--{} is '{}' (it takes {}); {}", spec.name, text, takes, remedy);
}

/// Parses the whole text as a number; false if it is not one.
template <typename T>
bool parse(std::string_view text, T& value) {
  const auto number = parse_number<T>(text);
  value = number.value_or(value);
  return number.has_value();
}

bool in_range(const OptionSpec& spec, double value) {
  return std::isfinite(value) && (spec.above_min ? value > spec.min : value >= spec.min) &&
         value <= spec.max;
}

/// Refuses numbers of which some are out of range, with those that are if all are in another unit.
[[noreturn]] void refuse_numbers(const OptionSpec& spec, const std::string& text,
                                 std::vector<double> values, const std::string& takes) {
  const bool is_share = spec.min == 0 && spec.max <= 1;
  for (double& value : values) value /= spec.other_scale;
  if (!is_share || !std::ranges::all_of(values, [&](double v) { return in_range(spec, v); })) {
    refuse(spec, text, takes);
  }
  refuse(spec, text, takes,
         fmt::format("divide by {}: --{} {:.6g}", spec.other_scale, spec.name,
                     fmt::join(values, ",")));
}

/// Seconds of "90s", "10min" or "2h"; nullopt for anything else and for zero.
std::optional<double> parse_time(const std::string& text) {
  constexpr std::pair<std::string_view, double> units[] = {{"min", 60}, {"h", 3600}, {"s", 1}};
  for (const auto& [suffix, seconds] : units) {
    if (!text.ends_with(suffix)) continue;
    double number = 0;
    const std::string digits = text.substr(0, text.size() - suffix.size());
    if (!parse(digits, number) || !(number > 0) || !std::isfinite(number * seconds)) {
      return std::nullopt;
    }
    return number * seconds;
  }
  return std::nullopt;
}

}  // namespace

std::string allowed_values(const OptionSpec& spec, bool is_integer) {
  if (!spec.choices.empty()) return fmt::format("one of {}", fmt::join(spec.choices, ", "));
  const bool low = std::isfinite(spec.min);
  const bool high = std::isfinite(spec.max);
  const char* const kind = is_integer ? "a whole number" : "a number";
  const char* const from = spec.above_min ? "above" : "of at least";
  if (low && high) {
    return fmt::format("{} {} {}{} {}", kind, spec.above_min ? "above" : "from", spec.min,
                       spec.above_min ? " up to" : " to", spec.max);
  }
  if (low) return fmt::format("{} {} {}", kind, from, spec.min);
  if (high) return fmt::format("{} of at most {}", kind, spec.max);
  return is_integer ? kind : "";
}

void parse_option(const OptionSpec& spec, const std::string& text, std::string& value) {
  if (text.find_first_of("#\n\r") != std::string::npos) {
    refuse(spec, text, "text without '#' and line ends, which a configuration file cannot hold");
  }
  constexpr const char* blanks = " \t";
  if (text.find_last_not_of(blanks) + 1 != text.size() || text.find_first_of(blanks) == 0) {
    refuse(spec, text, "text without blanks at its ends, which a configuration file cannot hold");
  }
  if (text == "~" || text.starts_with("~/")) {
    refuse(spec, text, "a path as it is, since shells expand ~ only where a word begins with it",
           fmt::format("write the whole path, or --{} ~/... without =", spec.name));
  }
  if (text.size() > 1 && text.front() == text.back() &&
      (text.front() == '"' || text.front() == '\'')) {
    refuse(spec, text, "text without quotes around it, which would be part of it");
  }
  if (!spec.choices.empty()) static_cast<void>(parse_choice(spec, text));
  value = text;
}

void parse_option(const OptionSpec& spec, const std::string& text, std::int64_t& value) {
  std::int64_t parsed = 0;
  if (!parse(text, parsed) || !in_range(spec, static_cast<double>(parsed))) {
    refuse(spec, text, allowed_values(spec, true));
  }
  value = parsed;
}

void parse_option(const OptionSpec& spec, const std::string& text, double& value) {
  double parsed = 0;
  const std::string allowed = allowed_values(spec, false);
  const std::string takes = allowed.empty() ? "a number" : allowed;
  if (!parse(text, parsed)) refuse(spec, text, takes);
  if (!in_range(spec, parsed)) refuse_numbers(spec, text, {parsed}, takes);
  value = parsed;
}

void parse_option(const OptionSpec& spec, const std::string& text, bool& value) {
  if (text != "true" && text != "false") refuse(spec, text, "true or false");
  value = text == "true";
}

namespace {

/// The parts between commas; none of an empty text. An empty part is refused.
std::vector<std::string> split(const OptionSpec& spec, const std::string& text,
                               const std::string& expected) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    if (comma == begin || comma + 1 == text.size()) refuse(spec, text, expected);
    parts.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

}  // namespace

void parse_option(const OptionSpec& spec, const std::string& text, std::vector<double>& value) {
  const std::string allowed = allowed_values(spec, false);
  const std::string takes = fmt::format("numbers with commas between them{}{}",
                                        allowed.empty() ? "" : ", each ", allowed);
  std::vector<double> parsed;
  for (const std::string& part : split(spec, text, takes)) {
    if (!parse(part, parsed.emplace_back())) refuse(spec, text, takes);
  }
  if (!std::ranges::all_of(parsed, [&](double each) { return in_range(spec, each); })) {
    refuse_numbers(spec, text, std::move(parsed), takes);
  }
  value = std::move(parsed);
}

void parse_option(const OptionSpec& spec, const std::string& text,
                  std::vector<std::string>& value) {
  std::string whole;
  parse_option(spec, text, whole);
  value = split(spec, whole, "patterns with commas between them");
}

void parse_option(const OptionSpec& spec, const std::string& text, std::vector<LrScale>& value) {
  const std::string expected = "PATTERN=FACTOR, the factor above 0, with commas between several";
  std::vector<LrScale> parsed;
  for (const std::string& item : split(spec, text, expected)) {
    const std::size_t equals = item.rfind('=');
    double factor = 0;
    if (equals == 0 || equals == std::string::npos ||
        !parse(std::string_view(item).substr(equals + 1), factor) || !(factor > 0) ||
        !std::isfinite(factor)) {
      refuse(spec, text, expected);
    }
    parsed.push_back({.pattern = item.substr(0, equals), .factor = factor});
  }
  value = std::move(parsed);
}

void parse_option(const OptionSpec& spec, const std::string& text, SaveInterval& value) {
  SaveInterval parsed{.automatic = text == "auto"};
  if (parsed.automatic) {
    value = parsed;
    return;
  }
  if (const auto seconds = parse_time(text)) {
    value = {.steps = 0, .seconds = *seconds};
    return;
  }
  if (!parse(text, parsed.steps) || parsed.steps < 0) {
    refuse(spec, text, "auto, steps as 500, or a time above 0 as 90s, 10min or 2h");
  }
  value = parsed;
}

void parse_option(const OptionSpec& spec, const std::string& text, TimeSpan& value) {
  const auto seconds = text == "0" ? 0.0 : parse_time(text);
  if (!seconds) refuse(spec, text, "0, or a time as 90s, 10min or 2h");
  value.seconds = *seconds;
}

void parse_option(const OptionSpec& spec, const std::string& text, ShardUnit& value) {
  constexpr std::string_view by_size = "size:";
  ShardUnit parsed;
  if (text == "block") {
    parsed.by = ShardUnit::By::block;
  } else if (text == "stage") {
    parsed.by = ShardUnit::By::stage;
  } else if (text.starts_with(by_size)) {
    parsed.by = ShardUnit::By::size;
    if (!parse(text.substr(by_size.size()), parsed.smallest)) parsed.smallest = 0;
  }
  const bool bad_size = parsed.by == ShardUnit::By::size && parsed.smallest < 1;
  if (bad_size || (parsed.by == ShardUnit::By::automatic && text != "auto")) {
    refuse(spec, text, "auto, block, stage, or the smallest number of parameters as size:1000000");
  }
  value = parsed;
}

void parse_option(const OptionSpec& spec, const std::string& text, StepRange& value) {
  StepRange parsed;
  const std::size_t colon = text.find(':');
  const std::string_view whole(text);
  if (!text.empty() &&
      (colon == std::string::npos || !parse(whole.substr(0, colon), parsed.first) ||
       !parse(whole.substr(colon + 1), parsed.last) || parsed.first < 1 ||
       parsed.last < parsed.first)) {
    refuse(spec, text, "a first and a last step from 1, the last not before the first, as 10:12");
  }
  value = parsed;
}

void parse_option(const OptionSpec& spec, const std::string& text,
                  std::vector<ImageSizeChange>& value) {
  const std::string expected =
      fmt::format("SIZE@EPOCHS, comma-separated, as 192@60,224@80; SIZE is {}, EPOCHS at least 1",
                  allowed_values(spec, true));
  std::vector<ImageSizeChange> parsed;
  for (const std::string& part : split(spec, text, expected)) {
    const std::size_t at = part.find('@');
    ImageSizeChange& change = parsed.emplace_back();
    if (at == std::string::npos || !parse(std::string_view(part).substr(0, at), change.size) ||
        !parse(std::string_view(part).substr(at + 1), change.epoch) || change.epoch < 1 ||
        !in_range(spec, static_cast<double>(change.size))) {
      refuse(spec, text, expected);
    }
  }
  value = std::move(parsed);
}

std::size_t parse_choice(const OptionSpec& spec, const std::string& text) {
  const auto found = std::find(spec.choices.begin(), spec.choices.end(), text);
  if (found == spec.choices.end()) refuse(spec, text, allowed_values(spec, false));
  return static_cast<std::size_t>(found - spec.choices.begin());
}

std::string print_option(const std::string& value) {
  return value;
}
std::string print_option(std::int64_t value) {
  return std::to_string(value);
}
std::string print_option(double value) {
  return fmt::format("{}", value);
}
std::string print_option(bool value) {
  return value ? "true" : "false";
}
std::string print_option(const std::vector<double>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}
std::string print_option(const std::vector<std::string>& value) {
  return fmt::format("{}", fmt::join(value, ","));
}
std::string print_option(const std::vector<LrScale>& value) {
  std::vector<std::string> factors;
  factors.reserve(value.size());
  for (const LrScale& each : value)
    factors.push_back(fmt::format("{}={}", each.pattern, each.factor));
  return fmt::format("{}", fmt::join(factors, ","));
}
std::string print_option(const SaveInterval& value) {
  if (value.automatic) return "auto";
  return value.seconds > 0 ? fmt::format("{}s", value.seconds) : std::to_string(value.steps);
}

std::string print_option(const TimeSpan& value) {
  return value.seconds > 0 ? fmt::format("{}s", value.seconds) : "0";
}

std::string print_option(const ShardUnit& value) {
  switch (value.by) {
    case ShardUnit::By::stage:
      return "stage";
    case ShardUnit::By::size:
      return fmt::format("size:{}", value.smallest);
    case ShardUnit::By::block:
      return "block";
    case ShardUnit::By::automatic:
      break;
  }
  return "auto";
}

std::string print_option(const StepRange& value) {
  return value == StepRange{} ? "" : fmt::format("{}:{}", value.first, value.last);
}

std::string print_option(const std::vector<ImageSizeChange>& value) {
  std::vector<std::string> changes;
  changes.reserve(value.size());
  for (const auto& [size, epoch] : value) changes.push_back(fmt::format("{}@{}", size, epoch));
  return fmt::format("{}", fmt::join(changes, ","));
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  // Levenshtein's distance, row by row.
  const auto distance = [name](const std::string& other) {
    std::vector<std::size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 0; i < name.size(); ++i) {
      std::size_t diagonal = row[0];
      row[0] = i + 1;
      for (std::size_t j = 0; j < other.size(); ++j) {
        const std::size_t replaced = diagonal + (name[i] == other[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
      }
    }
    return row.back();
  };
  std::string best;
  std::size_t least = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t d = distance(candidate);
    if (d < least) {
      least = d;
      best = candidate;
    }
  }
  return best;
}

}  // namespace lockstep
