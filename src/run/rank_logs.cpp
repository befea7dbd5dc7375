#include "lockstep/run/rank_logs.hpp"

#include "lockstep/core/descriptor.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/log_words.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <set>
#include <span>

namespace lockstep {
namespace {

constexpr std::string_view first_log = "rank-00000.log";  // of rank 0

/// Null if it is no file of the run directory alone.
Descriptor open_log(const FilePath& path) {
  Descriptor file = path.open(O_RDONLY);
  struct stat status {};
  const bool is_own =
      file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink <= 1;
  return is_own ? std::move(file) : Descriptor();
}

/// Calls `use` with each line from `offset` on; a line that a dying rank has not completed, too.
void read_lines(const Descriptor& file, std::uint64_t offset,
                FunctionRef<void(std::string_view line)> use) {
  std::vector<char> block(std::size_t{1} << 16);
  std::string rest;
  for (;;) {
    const auto count = read_at(file, offset, std::as_writable_bytes(std::span(block)));
    if (count.value_or(0) == 0) break;  // what cannot be read tells nothing
    offset += *count;
    rest.append(block.data(), *count);
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = rest.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      use(std::string_view(rest).substr(begin, end - begin));
    }
    rest.erase(0, begin);
  }
  if (!rest.empty()) use(rest);
}

bool has(std::string_view line, std::string_view text) {
  return line.find(text) != std::string_view::npos;
}

bool is_host(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-';
  });
}

/// Calls `use` with the host of each "rank N (HOST, DEVICE) " of a line, and what follows.
void find_ranks(std::string_view line,
                FunctionRef<void(std::string_view host, std::string_view says)> use) {
  constexpr std::string_view mark = "rank ";
  while (true) {
    const std::size_t at = line.find(mark);
    if (at == std::string_view::npos) return;
    line.remove_prefix(at + mark.size());
    const std::size_t digits = line.find_first_not_of("0123456789");
    if (digits == 0 || digits == std::string_view::npos) continue;
    const std::size_t end = line.find(')');
    if (!line.substr(digits).starts_with(" (") || end == std::string_view::npos) continue;
    const std::string_view inside = line.substr(digits + 2, end - digits - 2);
    line.remove_prefix(end + 1);
    const std::string_view host = inside.substr(0, inside.find(','));
    if (is_host(host) && line.starts_with(' ')) use(host, line.substr(1));
  }
}

bool is_unreachable(std::string_view says) {
  return says.starts_with(fmt::format("{} ({}", log_words::gone, log_words::no_answer));
}

bool is_suspect(std::string_view says) {
  constexpr std::array words{log_words::gone, log_words::late, log_words::alone, log_words::silent,
                             log_words::drifted};
  return std::ranges::any_of(words, [&](std::string_view word) { return says.starts_with(word); });
}

/// Adds the hosts that a line advises to leave out because they are slow.
void find_slow(std::string_view line, std::set<std::string>& hosts) {
  if (!has(line, fmt::format(" {}: ", log_words::slow))) return;
  const std::size_t at = line.rfind(log_words::exclude);
  if (at == std::string_view::npos) return;
  std::string_view list = line.substr(at + log_words::exclude.size());
  list = list.substr(0, std::min(list.find_first_of(" ;)"), list.size()));
  while (!list.empty()) {
    const std::string_view host = list.substr(0, list.find(','));
    if (is_host(host)) hosts.emplace(host);
    list.remove_prefix(std::min(host.size() + 1, list.size()));
  }
}

using Votes = std::map<std::string, std::int64_t>;

std::vector<std::string> majority(const Votes& votes, std::int64_t logs) {
  std::vector<std::string> hosts;
  for (const auto& [host, count] : votes) {
    if (2 * count > logs) hosts.push_back(host);
  }
  return hosts;
}

bool is_log(const DirectoryEntry& entry) {
  return entry.name.starts_with("rank-") && entry.name.ends_with(".log") && entry.is_file();
}

std::vector<DirectoryEntry> logs_in(const FilePath& directory) {
  try {
    std::vector<DirectoryEntry> entries = entries_in(directory);
    std::erase_if(entries, [](const DirectoryEntry& entry) { return !is_log(entry); });
    return entries;
  } catch (const Error&) {  // no rank has started
    return {};
  }
}

}  // namespace

LoggedEnd logged_end(const OpenDirectory& run, std::uint64_t bytes) {
  const Descriptor log = open_log(run / "log" / first_log);
  struct stat status {};
  if (!log || ::fstat(log.get(), &status) != 0 ||
      static_cast<std::uint64_t>(status.st_size) == bytes) {
    return LoggedEnd::nothing;
  }
  LoggedEnd end = LoggedEnd::unfinished;
  const auto at_step = [](std::string_view what) { return fmt::format("{} at step", what); };
  read_lines(log, bytes, [&](std::string_view line) {
    if (has(line, at_step(log_words::finished)) || has(line, log_words::nothing_to_do)) {
      end = LoggedEnd::finished;
    } else if (end == LoggedEnd::unfinished && (has(line, at_step(log_words::stopped_on_request)) ||
                                                has(line, at_step(log_words::stopped_in_time)))) {
      end = LoggedEnd::stopped;
    }
  });
  return end;
}

NamedHosts named_hosts(const OpenDirectory& run, std::string_view since) {
  Votes unreachable;
  Votes suspect;
  std::set<std::string> slow;
  std::int64_t logs = 0;
  for (const DirectoryEntry& entry : logs_in(run / "log")) {
    const Descriptor file = open_log(run / "log" / entry.name);
    if (!file) continue;
    std::set<std::string> unreachable_here;
    std::set<std::string> suspect_here;
    bool is_recent = false;
    read_lines(file, 0, [&](std::string_view line) {
      if (line < since) return;
      is_recent = true;
      if (entry.name == first_log) find_slow(line, slow);
      find_ranks(line, [&](std::string_view host, std::string_view says) {
        if (is_unreachable(says)) unreachable_here.emplace(host);
        if (is_suspect(says)) suspect_here.emplace(host);
      });
    });
    if (is_recent) ++logs;
    for (const std::string& host : unreachable_here) ++unreachable[host];
    for (const std::string& host : suspect_here) ++suspect[host];
  }
  return {.unreachable = majority(unreachable, logs),
          .suspect = majority(suspect, logs),
          .slow = {slow.begin(), slow.end()}};
}

}  // namespace lockstep
