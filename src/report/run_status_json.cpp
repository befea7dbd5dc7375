#include "lockstep/core/json.hpp"
#include "lockstep/report/run_status.hpp"
#include "run_json.hpp"

namespace lockstep::report {
namespace {

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json array_of(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values) array.push_back(json_of(value));
  return array;
}

Json seconds_json(const RunStatus& status) {
  if (status.phase_steps == 0) return nullptr;
  Json json{{"steps", json_of(status.phase_steps)}, {"total", json_of(status.step_seconds)}};
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    json[phase_names[i]] = json_of(status.phases[i]);
  }
  return json;
}

Json slowest_json(const std::optional<SlowRank>& slowest) {
  if (!slowest) return nullptr;
  return {{"rank", slowest->rank},
          {"host", slowest->host},
          {"factor", json_of(slowest->last_factor)},
          {"epoch", json_of(slowest->last_epoch)},
          {"reports", slowest->reports}};
}

Json checkpoint_json(const RunStatus& status) {
  if (!status.checkpoint) return nullptr;
  return {{"name", status.checkpoint->name},
          {"step", json_of(status.checkpoint_step)},
          {"age_seconds", json_of(status.checkpoint_age)},
          {"save_seconds", json_of(status.save_seconds)}};
}

}  // namespace

Json status_json(const RunStatus& status) {
  return {{"path", status.path},
          {"name", status.name},
          {"state", name_of(status.activity)},
          {"reason", text_or_null(status.reason)},
          {"silent_seconds", json_of(status.silent)},
          {"job", text_or_null(status.holder)},
          {"jobs", json_of(status.jobs)},
          {"model", text_or_null(status.model)},
          {"ranks", json_of(status.ranks)},
          {"nodes", json_of(status.nodes)},
          {"hosts", text_or_null(status.hosts)},
          {"device", text_or_null(status.device)},
          {"version", text_or_null(status.version)},
          {"step", json_of(status.step)},
          {"steps", json_of(status.steps)},
          {"epoch", json_of(status.epoch)},
          {"epochs", json_of(status.epochs)},
          {"seconds_left", json_of(status.seconds_left)},
          {"loss", json_of(status.loss)},
          {"top1", json_of(status.top1)},
          {"lr", json_of(status.lr)},
          {"images_per_second", json_of(status.images_per_second)},
          {"gradient_norm", json_of(status.gradient_norm)},
          {"last_losses", array_of(status.last_losses)},
          {"first_not_finite", json_of(status.first_not_finite)},
          {"validation",
           {{"loss", json_of(status.validation_loss)},
            {"top1", json_of(status.validation_top1)},
            {"ema_top1", json_of(status.validation_ema_top1)},
            {"best_top1", json_of(status.best_top1)},
            {"best_step", json_of(status.best_step)},
            {"top1s", array_of(status.validation_top1s)}}},
          {"step_seconds", seconds_json(status)},
          {"slowest", slowest_json(status.slowest)},
          {"memory",
           {{"planned_bytes", json_of(status.planned_bytes)},
            {"peak_rss_bytes", json_of(status.peak_rss)}}},
          {"checkpoint", checkpoint_json(status)},
          {"restarts",
           {{"count", status.restarts.count}, {"last", text_or_null(status.restarts.last)}}},
          {"notes", status.notes}};
}

}  // namespace lockstep::report
