#include "lockstep/core/escape.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/report/comparison.hpp"
#include "lockstep/report/live_run.hpp"
#include "lockstep/report/metrics_csv.hpp"
#include "lockstep/report/page.hpp"
#include "lockstep/report/run_record.hpp"
#include "lockstep/report/scaling_study.hpp"
#include "lockstep/report/status_frame.hpp"

#include "fuzz.hpp"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

namespace lockstep::fuzz {
namespace {

using namespace lockstep::report;

/// Only a terminal's line breaks and tabs may be in what is printed.
void check_printed(std::string_view text) {
  if (escape_controls(text) != text) __builtin_trap();
}

void check_page(const std::string& page) {
  // The data's element ends where the page's own end tag is.
  const std::size_t data = page.find("id=\"data\">");
  if (data == std::string::npos) __builtin_trap();
  const std::size_t end = page.find('<', data);
  if (page.compare(end, 9, "</script>") != 0) __builtin_trap();
}

void read_as_run(const std::string& path) {
  accepts([&] {
    const RunRecord run = read_run(path, 50);
    const std::array runs{run, run};
    check_page(page_of(runs));
    static_cast<void>(differing_options(runs));
    static_cast<void>(figures_of(run));
  });
  accepts([&] {
    LiveRun live(path);
    for (const double now : {1e9, 2e9}) {
      const RunStatus status = live.update(now);
      static_cast<void>(status_json(status).dump(-1, ' ', true, Json::error_handler_t::replace));
      for (const Charset charset : {Charset::ascii, Charset::unicode}) {
        for (const StyledLine& line : frame_of(status, {.columns = 79, .rows = 30}, charset)) {
          check_printed(render(line, Colors::no));
        }
      }
    }
  });
  accepts([&] {
    std::ostringstream csv;
    static_cast<void>(write_metrics_csv(path, "", csv));
    check_printed(csv.str());
  });
}

}  // namespace

/// The files of a run directory or a scaling study, separated by zero bytes.
void run(Bytes bytes) {
  static const Scratch scratch;
  constexpr std::array names{"metrics.jsonl",   "config.ini",    "lock",
                             "restarts",        "confusion.csv", "points",
                             "weak-0001-1.json"};
  std::filesystem::remove_all(scratch.path());
  std::filesystem::create_directories(scratch.path());
  for (const char* name : names) {
    const auto end = std::ranges::find(bytes, 0);
    static_cast<void>(scratch.write(name, {bytes.begin(), end}));
    if (end == bytes.end()) break;
    bytes = {end + 1, bytes.end()};
  }
  read_as_run(scratch.path());
  accepts([&] {
    const ScalingStudy study = read_scaling_study(scratch.path());
    check_page(page_of(study));
    static_cast<void>(table_of(study));
  });
}

}  // namespace lockstep::fuzz

LOCKSTEP_FUZZ_ENTRY
