#include "lockstep/report/run_record.hpp"

#include "events_reader.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/file_path.hpp"
#include "lockstep/core/input_file.hpp"
#include "lockstep/core/metrics.hpp"
#include "lockstep/core/text_file.hpp"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <sstream>

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;

/// Of a run; train has a tenth of it. A configuration of others is kept up to here.
constexpr std::size_t most_options = 2000;

using Names = std::vector<std::string>;

/// The loss and the first `count` metrics.
Names with_loss(std::size_t count, const std::string& prefix = {}) {
  Names names{prefix + "loss"};
  for (std::size_t i = 0; i < count; ++i) {
    names.push_back(prefix + std::string(metric_table[i].name));
  }
  return names;
}

Names joined(std::initializer_list<Names> parts) {
  Names all;
  for (const Names& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Notes the text of an Error instead of throwing it.
template <typename Action>
void noting(RunRecord& run, Action action) {
  try {
    action();
  } catch (const Error& error) {
    run.notes.emplace_back(error.what());
  }
}

}  // namespace

RunRecord::RunRecord(std::size_t most_bins)
    : steps(joined({with_loss(training_metrics),
                    {"lr", "images_per_second", "gradient_norm", "seconds.data", "seconds.forward",
                     "seconds.backward", "seconds.communication", "seconds.optimizer", "seconds"}}),
            most_bins),
      epochs(joined({with_loss(training_metrics), {"images_per_second", "peak_rss_bytes"}}),
             most_bins),
      evaluations(joined({with_loss(metric_table.size()), with_loss(metric_table.size(), "ema_")}),
                  most_bins),
      checkpoints({}, most_bins),
      stragglers({}, most_bins) {}

std::size_t RunRecord::series(const Curve& curve, const std::string& name) {
  const auto found = std::ranges::find(curve.names(), name);
  return static_cast<std::size_t>(found - curve.names().begin());
}

Options parse_options(const std::string& text) {
  Options options;
  std::istringstream lines(text);
  for (std::string line; options.size() < most_options && std::getline(lines, line);) {
    const std::size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string::npos) continue;
    options.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return options;
}

std::string run_name(const std::string& path) {
  return fs::absolute(fs::path(path) / "").lexically_normal().parent_path().filename().string();
}

void require_run(const std::string& path) {
  const char* const suggestion = "give the --run-dir of a training";
  require_directory_if_present(path, suggestion);
  const FilePath metrics = OpenDirectory(path) / "metrics.jsonl";
  if (!metrics.exists()) {
    fail(ExitStatus::no_input, "{} is no run directory (there is no metrics.jsonl in it); {}", path,
         suggestion);
  }
  require_input(metrics);
}

RunRecord read_run(const std::string& path, std::size_t most_bins) {
  require_run(path);
  const OpenDirectory files(path);
  RunRecord run(most_bins);
  run.path = path;
  run.name = run_name(path);
  EventsReader events(run, files / "metrics.jsonl");
  static_cast<void>(events.read());
  events.read_rest();
  run.notes = events.notes();
  noting(run, [&] { run.options = parse_options(read_text_file(files / "config.ini")); });
  if (const FilePath confusion = files / "confusion.csv"; confusion.exists()) {
    noting(run, [&] { run.confusion = read_confusion(confusion, most_errors); });
  }
  return run;
}

}  // namespace lockstep::report
