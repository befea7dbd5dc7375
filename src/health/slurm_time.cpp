#include "lockstep/health/slurm_time.hpp"

#include "lockstep/core/parse_number.hpp"
#include "lockstep/runtime/run_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace lockstep {
namespace {

/// Clocks of nodes may differ by this much (Slurm's authentication allows no more).
constexpr double clock_tolerance = 300;

std::optional<double> number(std::string_view text) {
  const auto value = parse_number<double>(text);
  return value && *value >= 0 && std::isfinite(*value) ? value : std::nullopt;
}

std::string first_line_of(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
  return line;
}

}  // namespace

std::optional<double> parse_time_left(const std::string& text) {
  std::string_view rest = text;
  double days = 0;
  if (const auto dash = rest.find('-'); dash != std::string_view::npos) {
    const auto value = number(rest.substr(0, dash));
    if (!value) return std::nullopt;
    days = *value;
    rest.remove_prefix(dash + 1);
  }
  double seconds = 0;
  for (int parts = 1; parts <= 3; ++parts) {
    const auto colon = std::min(rest.find(':'), rest.size());
    const auto value = number(rest.substr(0, colon));
    if (!value) return std::nullopt;
    seconds = 60 * seconds + *value;
    if (colon == rest.size()) return 86400 * days + seconds;
    rest.remove_prefix(colon + 1);
  }
  return std::nullopt;
}

SlurmAnswer read_squeue(const std::string& output, std::optional<int> status,
                        const std::string& job) {
  using Kind = SlurmAnswer::Kind;
  std::string_view rest = output;
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const std::string line = first_line_of(std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (!line.starts_with(job + " ")) continue;
    const std::string left = line.substr(line.find_last_of(' ') + 1);
    if (left == "UNLIMITED") return {.kind = Kind::unlimited};
    // What squeue prints for a negative time: Slurm's OverTimeLimit lets jobs run on.
    if (left == "INVALID") return {.kind = Kind::ends, .seconds_left = 0};
    if (const auto seconds = parse_time_left(left)) {
      return {.kind = Kind::ends, .seconds_left = *seconds};
    }
    if (left == "NOT_SET") return {.kind = Kind::unlimited};
  }
  if ((status == 0 && output.empty()) || output.find("Invalid job id") != std::string::npos) {
    return {.kind = Kind::unknown_job};
  }
  return {.kind = Kind::none, .text = first_line_of(output)};
}

SlurmAnswer ask_slurm(const std::string& job, const std::stop_token& stop) {
  const CommandResult squeue = run_command(
      {"squeue", "--noheader", "--jobs=" + job, "--format=%A %L"},
      {.without = {"SQUEUE_", "SLURM_TIME_FORMAT=", "SLURM_CLUSTERS=", "SLURM_FEDERATION="}}, stop);
  return read_squeue(squeue.output, squeue.status, job);
}

VariableTime time_of_variables(const VariableLookup& lookup, double now) {
  const auto text = lookup("SLURM_JOB_END_TIME");
  if (!text) return {};
  const auto refused = [&](const std::string& why) {
    return VariableTime{
        .seconds_left = std::nullopt,
        .problem = fmt::format("SLURM_JOB_END_TIME={} is not used ({})", *text, why)};
  };
  const auto end = number(*text);
  if (!end) return refused("not seconds since 1970");
  if (*end <= now) {
    return refused("in the past, so it is another job's");
  }
  if (const auto start_text = lookup("SLURM_JOB_START_TIME")) {
    const auto start = number(*start_text);
    if (!start || *start >= *end || *start > now + clock_tolerance) {
      return refused(fmt::format("SLURM_JOB_START_TIME={} does not fit it", *start_text));
    }
  }
  return {.seconds_left = *end - now, .problem = {}};
}

std::string slurm_job(const VariableLookup& lookup) {
  const std::string job = lookup("SLURM_JOB_ID").value_or("");
  const bool is_number =
      !job.empty() && std::ranges::all_of(job, [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? job : std::string();
}

}  // namespace lockstep
