#include "lockstep/run/restart_record.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/output_file.hpp"
#include "lockstep/core/text_file.hpp"
#include "lockstep/run/append_file.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <sstream>

namespace lockstep {
namespace {

constexpr const char* file_name = "restarts";
constexpr const char* suggestion = "move it away, or use another run directory";
constexpr std::string_view crash_word = "crash";
constexpr std::string_view unlogged_word = "unlogged";
constexpr std::string_view preempted_word = "preempted";
constexpr std::string_view in_job_word = "in-job";
constexpr std::string_view left_out_key = "left-out=";
constexpr std::string_view named_key = "named=";

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  std::istringstream text{std::string(list)};
  for (std::string part; std::getline(text, part, ',');) {
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

void read_word(std::string_view word, RestartRecord& record) {
  record.crashed |= word == crash_word;
  record.unlogged |= word == unlogged_word;
  record.preempted |= word == preempted_word;
  record.in_job |= word == in_job_word;
  if (word.starts_with(left_out_key)) record.left_out = split(word.substr(left_out_key.size()));
  if (word.starts_with(named_key)) record.named = split(word.substr(named_key.size()));
}

}  // namespace

std::string format_restart(const RestartRecord& record) {
  std::string line =
      fmt::format("{} {} {} {}", record.job, record.status, record.checkpoint, record.time);
  const auto add = [&](bool applies, std::string_view word,
                       const std::vector<std::string>& hosts = {}) {
    if (applies) line += fmt::format(" {}{}", word, fmt::join(hosts, ","));
  };
  add(record.crashed, crash_word);
  add(record.unlogged, unlogged_word);
  add(record.preempted, preempted_word);
  add(record.in_job, in_job_word);
  add(!record.left_out.empty(), left_out_key, record.left_out);
  add(!record.named.empty(), named_key, record.named);
  return line;
}

RestartRecord parse_restart(std::string_view line) {
  std::istringstream words{std::string(line)};
  RestartRecord record;
  std::string status;
  words >> record.job >> status >> record.checkpoint >> record.time;
  std::from_chars(status.data(), status.data() + status.size(), record.status);
  for (std::string word; words >> word;) read_word(word, record);
  return record;
}

RestartCounts count_restarts(std::span<const RestartRecord> records, std::string_view job,
                             std::string_view checkpoint) {
  RestartCounts counts;
  for (const RestartRecord& record : records) {
    if (record.job != job) continue;
    ++counts.all;
    if (record.checkpoint != checkpoint) counts.stalled = 0;
    if (record.checkpoint == checkpoint && !record.preempted) ++counts.stalled;
    if (record.crashed) ++counts.crashed;
    counts.unlogged = record.unlogged ? counts.unlogged + 1 : 0;
  }
  return counts;
}

bool was_named(std::span<const RestartRecord> records, std::string_view job,
               std::string_view host) {
  return std::ranges::any_of(records, [&](const RestartRecord& record) {
    return record.job == job && std::ranges::find(record.named, host) != record.named.end();
  });
}

std::vector<RestartRecord> read_restarts(const OpenDirectory& run) {
  const FilePath file = run / file_name;
  require_file_or_absent(file, suggestion);
  std::vector<RestartRecord> records;
  if (!file.exists()) return records;
  std::istringstream lines(read_text_file(file));
  for (std::string line; std::getline(lines, line);) records.push_back(parse_restart(line));
  return records;
}

void append_restart(const OpenDirectory& run, const RestartRecord& record) {
  const FilePath path = run / file_name;
  AppendFile file(path, AppendFile::Create::if_absent);
  if (file.valid() && file.append(format_restart(record) + "\n")) return;
  fail(ExitStatus::cannot_write, "cannot count a restart in {} ({}); check its permissions",
       path.text(), std::strerror(errno));
}

}  // namespace lockstep
