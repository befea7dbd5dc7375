#include "lockstep/run/run_reporter.hpp"

#include "lockstep/core/escape.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/log_words.hpp"
#include "lockstep/core/unix_time.hpp"
#include "lockstep/health/host_list.hpp"
#include "lockstep/run/metric_text.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/run_log.hpp"
#include "lockstep/run/tensorboard_writer.hpp"
#include "lockstep/runtime/memory_limit.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

namespace lockstep {
namespace {

constexpr const Metric& decides = metric_table[deciding_metric];

Json seconds_of(const PhaseTimes& times) {
  Json seconds{{"data", times.data},
               {"forward", times.forward},
               {"backward", times.backward},
               {"communication", times.communication},
               {"optimizer", times.optimizer}};
  if (times.gpu > 0) seconds["gpu"] = times.gpu;
  return seconds;
}

/// "rank 1 (node7) is slow: ...", without what to do.
std::string slowness(const StragglerReport& report) {
  const Straggler& slow = report.straggler;
  const std::string rank = fmt::format("rank {} ({})", slow.rank, report.host);
  if (slow.by == Straggler::By::gpu) {
    return fmt::format(
        "{} {}: its GPU takes {:.1f} times the median rank's for forward and backward ({:.1f} "
        "ms a step); nvidia-smi -q -d PERFORMANCE there tells why its clocks are low",
        rank, log_words::slow, slow.factor, 1e3 * report.times.gpu.p50);
  }
  const double own = report.times.data.p50 + report.times.compute.p50;
  return fmt::format(
      "{} {}: {:.1f} times the median rank's own time a step (data {:.1f} times, compute "
      "{:.1f} times; {:.1f} ms)",
      rank, log_words::slow, slow.factor, slow.data, slow.compute, 1e3 * own);
}

std::string phases_text(const PhaseTimes& times) {
  return fmt::format(
      "data {:.2f} s, forward {:.2f} s, backward {:.2f} s, communication {:.2f} s, optimizer "
      "{:.2f} s",
      times.data, times.forward, times.backward, times.communication, times.optimizer);
}

/// What `step` and `epoch` events share.
template <typename Report>
Json training_event(const char* kind, const Report& report) {
  Json event{{"event", kind},
             {"step", report.step},
             {"epoch", report.epoch},
             {"samples", report.samples},
             {"loss", report.loss}};
  add_metrics(event, report.metrics, training_metrics);
  event["lr"] = report.lr;
  event["images_per_second"] = report.images_per_second;
  event["seconds"] = seconds_of(report.times);
  return event;
}

Json changes_of(const std::vector<ConfigDifference>& changes) {
  Json object = Json::object();
  for (const ConfigDifference& change : changes) {
    object[change.name] = {change.left, change.right};
  }
  return object;
}

Json bytes_of(const PlannedMemory& memory) {
  return {{"activations", memory.activations},
          {"parameters", memory.parameters},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},
          {"copy", memory.copy}};
}

}  // namespace

struct RunReporter::Impl {
  explicit Impl(const RunReporterOptions& o)
      : options(o),
        log(o.run_dir, {.rank = o.grid.rank,
                        .world_size = o.grid.world_size,
                        .local_rank = o.grid.local_rank,
                        .host = o.grid.host,
                        .device = "cpu",
                        .cores = o.cores}) {
    const bool first = options.grid.rank == 0;
    if (first) {
      metrics.emplace(options.run_dir, options.resumed_step);
      tensorboard.emplace(options.run_dir, options.resumed_step);
    }
    if (first || options.log_ranks) {
      display.emplace(
          ProgressDisplay::Options{.bar = first && wants_bar(options.progress, terminal_facts()),
                                   .log_every = options.log_every});
    }
  }

  void print(const std::string& line) {
    if (!display) return;
    const std::string shown = escape_line(line);
    display->print(options.log_ranks ? fmt::format("[rank {}] {}", options.grid.rank, shown)
                                     : shown);
  }

  /// Whether to write the run's record: on rank 0, while this job holds the directory.
  [[nodiscard]] bool keeps_record() const {
    return metrics && (!options.holds_directory || options.holds_directory());
  }

  /// Appends an event with the time.
  void record(Json event) {
    event["time"] = unix_time();
    metrics->write(event);
  }

  RunReporterOptions options;
  RankLog log;
  std::optional<MetricsLog> metrics;
  std::optional<TensorboardWriter> tensorboard;
  std::optional<ProgressDisplay> display;
};

RunReporter::RunReporter(const RunReporterOptions& options)
    : impl_(std::make_unique<Impl>(options)) {}
RunReporter::~RunReporter() = default;

void RunReporter::say(const std::string& line) {
  impl_->log.info(line);
  if (impl_->options.grid.rank == 0) impl_->print(line);
}

void RunReporter::warn(const std::string& line) {
  impl_->log.warn(line);
  impl_->print("warning: " + line);
}

void RunReporter::note(const std::string& line) {
  impl_->log.info(line);
}

void RunReporter::alarm(const std::string& line) {
  impl_->log.warn(line);
}

void RunReporter::started(const TrainingState& state, const StartReport& report) {
  if (!impl_->keeps_record()) return;
  Json seconds = Json::object();
  for (const auto& phase : report.phases) seconds[phase.name] = phase.seconds;
  impl_->record({{"event", state.step == 0 ? "start" : "resume"},
                 {"step", state.step},
                 {"epoch", state.epoch},
                 {"samples", state.samples},
                 {"position", state.position},
                 {"model", state.model},
                 {"ranks", state.world_size},
                 {"global_batch", state.global_batch},
                 {"epoch_samples", report.epoch_samples},
                 {"version", state.version},
                 {"nodes", impl_->options.grid.nodes},
                 {"hosts", host_list(report.hosts)},
                 {"device", report.on_gpus ? "gpu" : "cpu"},
                 {"engine", report.engine},
                 {"backend", state.backend.value_or("")},
                 {"all_reduce", state.all_reduce.value_or("")},
                 {"threads", report.threads},
                 {"memory", bytes_of(report.memory)},
                 {"seconds", seconds},
                 {"changes", changes_of(report.changes)}});
}

void RunReporter::step(const StepReport& report) {
  if (impl_->display) {
    impl_->display->update({.epoch = report.epoch,
                            .epochs = impl_->options.epochs,
                            .step_of_epoch = report.step_of_epoch,
                            .steps_per_epoch = impl_->options.steps_per_epoch,
                            .step = report.step,
                            .total_steps = impl_->options.total_steps,
                            .loss = report.loss,
                            .lr = report.lr,
                            .images_per_second = report.images_per_second,
                            .seconds_left = std::nullopt});
  }
  if (report.step % impl_->options.log_every != 0 || !impl_->keeps_record()) return;
  Json event = training_event("step", report);
  if (report.gradient_norm > 0) event["gradient_norm"] = report.gradient_norm;
  impl_->record(std::move(event));
  TensorboardWriter& board = *impl_->tensorboard;
  board.scalar("train/loss", report.step, report.loss);
  board.scalar(fmt::format("train/{}", decides.name), report.step, report.metrics[deciding_metric]);
  board.scalar("train/lr", report.step, report.lr);
  board.scalar("speed/images_per_second", report.step, report.images_per_second);
}

void RunReporter::epoch(const EpochReport& report) {
  impl_->log.info(fmt::format("epoch {}: own mean loss {:.6f} over {:.0f} samples in {:.2f} s; {}",
                              report.epoch + 1, report.own_loss, report.own_samples, report.seconds,
                              phases_text(report.times)));
  if (!impl_->keeps_record()) return;
  impl_->print(fmt::format("epoch {}: loss {:.4f}, {} {:.2f} %, {:.0f} images/s, {:.1f} s",
                           report.epoch + 1, report.loss, decides.title,
                           100 * report.metrics[deciding_metric], report.images_per_second,
                           report.seconds));
  Json event = training_event("epoch", report);
  event["peak_rss_bytes"] = peak_resident_bytes();
  impl_->record(std::move(event));
  impl_->tensorboard->scalar("epoch/loss", report.step, report.loss);
  impl_->tensorboard->scalar(fmt::format("epoch/{}", decides.name), report.step,
                             report.metrics[deciding_metric]);
}

void RunReporter::straggler(const StragglerReport& report) {
  const Straggler& slow = report.straggler;
  // In every rank's log, the lines about thousands of slow ranks would be millions.
  const int rank = impl_->options.grid.rank;
  if (rank != 0 && rank != slow.rank) return;
  warn(fmt::format("epoch {}: {}; exclude it with {}{}", report.epoch + 1, slowness(report),
                   log_words::exclude, host_list({report.host})));
  if (!impl_->keeps_record()) return;
  const auto summary = [](const TimeSummary& time) -> Json {
    return {{"p50", time.p50}, {"max", time.max}};
  };
  Json event{{"event", "straggler"},
             {"step", report.step},
             {"epoch", report.epoch},
             {"rank", slow.rank},
             {"host", report.host},
             {"factor", slow.factor},
             {"by", slow.by == Straggler::By::gpu ? "gpu" : "own"},
             {"seconds",
              {{"data", summary(report.times.data)},
               {"compute", summary(report.times.compute)},
               {"communication", summary(report.times.communication)}}}};
  if (report.times.gpu.max > 0) event["seconds"]["gpu"] = summary(report.times.gpu);
  impl_->record(std::move(event));
}

void RunReporter::evaluation(std::int64_t step, std::int64_t epoch,
                             const Evaluations& evaluations) {
  const auto log = [&](const char* what, const EvaluationResult& result) {
    impl_->log.info(fmt::format("{} at step {}: loss {:.6f}, {}", what, step, result.loss,
                                fraction_text(result.metrics)));
  };
  const EvaluationResult& weights = evaluations.weights;
  log("evaluation", weights);
  if (evaluations.ema) log("evaluation of the average", *evaluations.ema);
  if (!impl_->keeps_record()) return;
  Json event{{"event", "eval"},
             {"step", step},
             {"epoch", epoch},
             {"samples", weights.samples},
             {"loss", weights.loss}};
  add_metrics(event, weights.metrics);
  event["images_per_second"] = static_cast<double>(weights.samples) / weights.seconds;
  event["seconds"] = {{"eval", weights.seconds}};
  const auto report = [&](const std::string& what, const std::string& tag,
                          const EvaluationResult& result) {
    impl_->print(fmt::format("{}: loss {:.4f}, {}, {} samples, {:.1f} s", what, result.loss,
                             percent_text(result.metrics), result.samples, result.seconds));
    impl_->tensorboard->scalar(tag + "/loss", step, result.loss);
    for (std::size_t i = 0; i < metric_table.size(); ++i) {
      impl_->tensorboard->scalar(fmt::format("{}/{}", tag, metric_table[i].name), step,
                                 result.metrics[i]);
    }
  };
  report("validation", "val", weights);
  if (const auto& ema = evaluations.ema) {
    report("validation of the average", "val_ema", *ema);
    event["ema_loss"] = ema->loss;
    add_metrics(event, ema->metrics, metric_table.size(), "ema_");
    event["seconds"]["ema_eval"] = ema->seconds;
  }
  impl_->record(std::move(event));
}

void RunReporter::saved(const BackgroundSaver::Outcome& outcome) {
  if (outcome.error) {
    warn(fmt::format("no checkpoint of step {}: {}", outcome.step, *outcome.error));
    return;
  }
  impl_->log.info(fmt::format("checkpoint {} in {:.2f} s", outcome.path, outcome.seconds));
  if (!impl_->keeps_record()) return;
  impl_->record({{"event", "checkpoint"},
                 {"step", outcome.step},
                 {"path", outcome.path},
                 {"seconds", {{"save", outcome.seconds}}}});
}

void RunReporter::stopped(std::int64_t step, std::int64_t epoch, const std::string& reason) {
  if (impl_->display) impl_->display->clear();
  say(fmt::format("{} at step {}", reason, step));
  if (!impl_->keeps_record()) return;
  impl_->record({{"event", "stop"},
                 {"step", step},
                 {"epoch", epoch},
                 {"reason", reason},
                 {"peak_rss_bytes", peak_resident_bytes()}});
}

}  // namespace lockstep
