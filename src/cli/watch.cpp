#include "command.hpp"
#include "lockstep/core/environment_variable.hpp"
#include "lockstep/core/unix_time.hpp"
#include "lockstep/report/live_run.hpp"
#include "lockstep/report/status_frame.hpp"
#include "lockstep/run/progress.hpp"
#include "terminal_screen.hpp"

#include <fmt/format.h>
#include <langinfo.h>
#include <unistd.h>

#include <chrono>
#include <clocale>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lockstep::cli {
namespace {

using report::Charset;
using report::Colors;

struct WatchArguments {
  double interval = 1;
  bool once = false;
  bool json = false;
  bool wait = false;
};

OptionTable<WatchArguments> watch_options() {
  OptionTable<WatchArguments> table;
  table.group("Display")
      .add(&WatchArguments::interval, "interval", "refresh interval",
           {.unit = "seconds", .min = 0.1, .max = 3600})
      .add(&WatchArguments::wait, "wait", "wait for a run directory that is not there yet")
      .add(&WatchArguments::once, "once", "print the current state as text and exit")
      .add(&WatchArguments::json, "json", "print the current state as one JSON object and exit");
  return table;
}

std::chrono::milliseconds interval_of(const WatchArguments& arguments) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * arguments.interval));
}

/// Of the locale.
Charset charset() {
  std::setlocale(LC_CTYPE, "");
  return std::string_view(::nl_langinfo(CODESET)) == "UTF-8" ? Charset::unicode : Charset::ascii;
}

bool can_show_screen() {
  const std::string terminal = environment_variable("TERM").value_or("");
  return ::isatty(STDOUT_FILENO) == 1 && !terminal.empty() && terminal != "dumb";
}

bool is_run(const std::string& path) {
  try {
    report::require_run(path);
    return true;
  } catch (const Error& error) {
    if (error.status() != ExitStatus::no_input) throw;  // waiting would not help
    return false;
  }
}

std::string waiting_message(const std::string& path) {
  return fmt::format("waiting for {} (there is no metrics.jsonl in it yet)", path);
}

void print_once(const std::string& path, const WatchArguments& arguments, Charset charset) {
  if (arguments.wait && !is_run(path)) {
    print_err("lockstep: {}\n", report::printable(waiting_message(path), charset));
    while (!is_run(path)) std::this_thread::sleep_for(interval_of(arguments));
  }
  const report::RunStatus status = report::LiveRun(path).update(unix_time());
  if (arguments.json) {
    print_json(report::status_json(status));
    return;
  }
  const std::size_t columns = terminal_size(STDOUT_FILENO).columns;
  for (const report::StyledLine& line : report::frame_of(status, {.columns = columns}, charset)) {
    print_out("{}\n", report::render(line, Colors::no));
  }
}

/// `status` nullopt: the run does not exist yet.
std::vector<std::string> screen_lines(const std::optional<report::RunStatus>& status,
                                      const std::string& path, Charset charset, Colors colors) {
  const TerminalSize size = terminal_size(STDOUT_FILENO);
  // The last column stays empty: some terminals wrap when it is filled.
  const bool has_footer = size.rows >= 16;
  const report::FrameSize inner{.columns = size.columns - 1,
                                .rows = size.rows - (has_footer ? 1 : 0)};
  std::vector<report::StyledLine> frame =
      status ? report::frame_of(*status, inner, charset)
             : report::message_frame(waiting_message(path), inner, charset);
  if (has_footer) {
    frame.resize(inner.rows);
    frame.push_back({{"q: quit", report::Style::dim}});
  }
  std::vector<std::string> lines;
  lines.reserve(frame.size());
  for (const report::StyledLine& line : frame) lines.push_back(report::render(line, colors));
  return lines;
}

void show_screen(const std::string& path, const WatchArguments& arguments, Charset charset) {
  const bool colored = environment_variable("NO_COLOR").value_or("").empty();
  std::optional<report::LiveRun> run;
  std::optional<TerminalScreen> screen;
  do {
    if (!run && is_run(path)) run.emplace(path);
    std::optional<report::RunStatus> status;
    if (run) status = run->update(unix_time());
    if (!screen) screen.emplace();  // not earlier: the first read may take long
    screen->draw(screen_lines(status, path, charset, colored ? Colors::yes : Colors::no));
  } while (screen->wait(interval_of(arguments)));
}

}  // namespace

ExitStatus run_watch(Invocation& invocation) {
  if (prints_help(
          invocation, watch_options(),
          "usage: lockstep watch RUN [options]\n\n"
          "Shows a run while it runs: progress, losses, speed, times, memory, checkpoints and\n"
          "slow ranks. Reads the run directory only, also on another host. q quits. Without a\n"
          "terminal, prints the current state.\n")) {
    return ExitStatus::ok;
  }
  const auto parsed = watch_options().parse(invocation.arguments, /*allow_positional=*/true);
  const WatchArguments& arguments = parsed.value;
  const std::string& path = only_argument(parsed.positional, "watch", "run directory");
  const Charset own = charset();
  if (!arguments.wait) report::require_run(path);
  if (arguments.once || arguments.json || !can_show_screen()) {
    print_once(path, arguments, own);
  } else {
    show_screen(path, arguments, own);
  }
  return ExitStatus::ok;
}

}  // namespace lockstep::cli
