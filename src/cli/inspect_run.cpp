#include "inspect_report.hpp"
#include "lockstep/checkpoint/checkpoint.hpp"
#include "lockstep/config/options.hpp"
#include "lockstep/core/directory.hpp"
#include "lockstep/core/file_link.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/line_follower.hpp"
#include "lockstep/core/metrics.hpp"
#include "lockstep/core/text_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

namespace lockstep::cli {
namespace {

bool is_statistic(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var");
}

/// Height, width and channels, as for data sets.
std::vector<std::int64_t> extents(const ImageShape& image) {
  return {image.height, image.width, image.channels};
}

Json state_json(const TrainingState& state) {
  return {{"step", state.step},
          {"epoch", state.epoch},
          {"position", state.position},
          {"samples", state.samples},
          {"seed", state.seed},
          {"world_size", state.world_size},
          {"global_batch", state.global_batch},
          {"best_top1", state.best_top1 < 0 ? Json(nullptr) : Json(state.best_top1)},
          {"best_step", state.best_step < 0 ? Json(nullptr) : Json(state.best_step)},
          {"loss_scale", state.loss_scale == 0 ? Json(nullptr) : Json(state.loss_scale)},
          {"skipped_steps", state.skipped_steps},
          {"model", state.model},
          {"optimizer", state.optimizer},
          {"model_identity", fmt::format("{:08x}", state.model_identity)},
          {"data_identity", fmt::format("{:08x}", state.data_identity)},
          {"version", state.version},
          {"config", state.config}};
}

std::string state_text(const TrainingState& state) {
  std::string text = line("model", state.model);
  text += line("step", fmt::format("{} (epoch {}, position {}, {} samples seen)", state.step,
                                   state.epoch, state.position, state.samples));
  text += line("batch", fmt::format("{} on {} rank{}", state.global_batch, state.world_size,
                                    state.world_size == 1 ? "" : "s"));
  text += line("optimizer", state.optimizer);
  text += line("seed", std::to_string(state.seed));
  if (state.best_top1 >= 0) {
    text += line("best",
                 fmt::format("top-1 {:.2f} % at step {}", 100 * state.best_top1, state.best_step));
  }
  return text + line("version", state.version);
}

/// The last event of each kind in metrics.jsonl. Ignores an incomplete last line.
std::vector<Json> last_events(const FilePath& path) {
  constexpr std::array kinds{"start", "step", "epoch", "eval", "checkpoint", "resume", "stop"};
  std::vector<Json> last(kinds.size());
  std::int64_t number = 0;
  bool is_damaged = false;  // the line before
  const auto read = [&](std::string_view text) {
    if (is_damaged) {
      fail(ExitStatus::bad_input, "{}: line {} is no JSON object (damaged); restore the file",
           path.text(), number);
    }
    ++number;
    std::optional<Json> event = parse_json(text);
    is_damaged = !event || !event->is_object();
    if (is_damaged || !event->contains("event")) return;
    const auto kind = std::ranges::find_if(
        kinds, [&](const char* name) { return event->find("event").value() == name; });
    if (kind != kinds.end()) {
      last[static_cast<std::size_t>(kind - kinds.begin())] = std::move(*event);
    }
  };
  LineFollower lines(path);
  static_cast<void>(lines.read(read));
  if (!lines.rest().empty()) read(lines.rest());
  std::erase_if(last, [](const Json& event) { return event.is_null(); });
  return last;
}

/// "step 40: loss 0.61, top1 0.78"
std::string event_text(const Json& event) {
  std::string text;
  std::vector<std::string> names{"step", "epoch", "samples"};
  for (const char* prefix : {"", "ema_"}) {
    names.push_back(fmt::format("{}loss", prefix));
    for (const Metric& metric : metric_table) {
      names.push_back(fmt::format("{}{}", prefix, metric.name));
    }
  }
  names.insert(names.end(), {"lr", "images_per_second"});
  for (const std::string& name : names) {
    const auto found = event.find(name);
    if (found == event.end() || !found->is_number()) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name,
                        found->is_number_integer() ? fmt::format("{}", found->get<std::int64_t>())
                                                   : fmt::format("{:.4g}", found->get<double>()));
  }
  return text;
}

std::vector<std::string> checkpoints_in(const FilePath& directory) {
  std::vector<std::string> names = names_in(directory);
  std::erase_if(names, [](const std::string& name) {
    return !name.starts_with("step-") || !name.ends_with(".h5");
  });
  return names;
}

/// The options of a run. Error(bad_input) without their text, since the file may be a hard link to
/// one that is not for whoever reads the message.
Config read_config(const FilePath& file) {
  const std::string text = read_text_file(file);
  std::string reason = "its lines contradict each other";
  try {
    return parse_config_text(text);
  } catch (const Error&) {
    // A configuration has fewer lines, each of which takes some time by itself.
    constexpr std::size_t most_lines = 1000;
    std::istringstream lines(text);
    std::size_t number = 0;
    for (std::string line; number < most_lines && std::getline(lines, line);) {
      ++number;
      try {
        static_cast<void>(parse_config_text(line));
      } catch (const Error&) {
        reason = fmt::format("line {} is no known option with its value", number);
        break;
      }
    }
  }
  fail(ExitStatus::bad_input,
       "{} is not the configuration of a run ({}); check where the directory comes from",
       file.text(), reason);
}

}  // namespace

Report inspect_checkpoint(const FilePath& path, Verify verify) {
  // Present checksums are always checked. --verify also requires a complete file if it has /state.
  const CheckpointReader reader(path, CheckpointUse::weights);
  reader.verify();
  const CheckpointInfo& checkpoint = reader.info();
  Report report;
  if (verify == Verify::yes && checkpoint.state) {
    keep_fault(report, [&] { CheckpointReader(path, CheckpointUse::resume).verify(); });
  }
  std::int64_t parameters = 0;
  Json tensors = Json::array();
  for (const CheckpointReader::Tensor& tensor : reader.model()) {
    if (!is_statistic(tensor.name)) parameters += tensor.shape.elements();
    const auto extents = tensor.shape.extents();
    tensors.push_back({{"name", tensor.name},
                       {"shape", std::vector<std::int64_t>(extents.begin(), extents.end())}});
  }
  std::vector<std::string> slots;
  for (const auto& [slot, values] : reader.optimizer()) slots.push_back(slot);

  report.json = {{"path", path.text()},
                 {"kind", "checkpoint"},
                 {"parameters", parameters},
                 {"tensors", std::move(tensors)},
                 {"classes", checkpoint.classes},
                 {"class_names", checkpoint.class_names},
                 {"mean", checkpoint.mean},
                 {"std", checkpoint.std},
                 {"image", checkpoint.image ? Json(extents(*checkpoint.image)) : Json(nullptr)},
                 {"optimizer_slots", slots},
                 {"ema", !reader.ema().empty()},
                 {"state", checkpoint.state ? state_json(*checkpoint.state) : Json(nullptr)}};
  report.text = fmt::format("{}: checkpoint, {} parameters in {} tensors\n", path.text(),
                            parameters, reader.model().size());
  report.text += checkpoint.state ? state_text(*checkpoint.state)
                                  : line("state", "none (weights alone: for eval and --init-from)");
  report.text += line("slots", join(slots));
  if (!reader.ema().empty()) {
    report.text +=
        line("ema", fmt::format("average of the weights, {} tensors; taken by eval, export and "
                                "--init-from (--no-ema: not by eval and export)",
                                reader.ema().size()));
  }
  if (checkpoint.classes > 0) report.text += line("classes", std::to_string(checkpoint.classes));
  report.text += line("names", join(checkpoint.class_names));
  report.text += line("mean", join(checkpoint.mean));
  report.text += line("std", join(checkpoint.std));
  if (checkpoint.image) {
    report.text += line("image", fmt::format("{}", fmt::join(extents(*checkpoint.image), "x")));
  }
  if (verify == Verify::yes) add_damage(report, report.json, "checksum");
  return report;
}

Report inspect_run(const std::string& directory, Verify verify) {
  Report report;
  const OpenDirectory files(directory);
  report.json = {{"path", directory}, {"kind", "run"}};
  report.text = fmt::format("{}: run\n", directory);

  if (const FilePath file = files / "config.ini"; file.exists()) {
    keep_fault(report, [&] {
      const Config config = read_config(file);
      report.json["model"] = config.model;
      report.json["data"] = config.data;
      report.text += line("model", config.model);
      report.text += line("data", config.data);
    });
  }
  keep_fault(report, [&] {
    report.json["last"] = Json::object();
    const FilePath metrics = files / "metrics.jsonl";
    if (!metrics.exists()) return;
    for (Json& event : last_events(metrics)) {
      const std::string kind = event["event"];
      if (kind != "start") report.text += line("last " + kind, event_text(event));
      report.json["last"][kind] = std::move(event);
    }
  });
  const FilePath checkpoints = files / "checkpoints";
  std::vector<std::string> names;
  if (checkpoints.exists()) {
    keep_fault(report, [&] { names = checkpoints_in(checkpoints); });
  }
  report.json["checkpoints"] = names;
  report.json["latest"] = name_behind(files / "checkpoints/latest");
  report.json["best"] = name_behind(files / "checkpoints/best");
  report.text += line("checkpoints", names.empty() ? "none" : join(names));
  report.text += line("best", name_behind(files / "checkpoints/best"));
  if (verify == Verify::yes) {
    for (const std::string& name : names) {
      const FilePath path = files / ("checkpoints/" + name);
      keep_fault(report, [&] { CheckpointReader(path, CheckpointUse::resume).verify(); });
    }
    add_damage(report, report.json, "checkpoint");
  }
  return report;
}

}  // namespace lockstep::cli
