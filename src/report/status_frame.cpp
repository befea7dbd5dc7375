#include "lockstep/report/status_frame.hpp"

#include "frame_rows.hpp"
#include "lockstep/core/units.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lockstep::report {
namespace {

std::string grouped_count(double count, const char* what) {
  return fmt::format("{} {}{}", grouped(count), what, count == 1 ? "" : "s");
}

std::string percent(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.2f} %", 100 * share);
}

std::string loss_text(double loss) {
  if (!std::isfinite(loss)) return "not finite";
  return std::abs(loss) < 1000 ? fmt::format("{:.4f}", loss) : fmt::format("{:.4g}", loss);
}

Style style_of(Activity activity) {
  switch (activity) {
    case Activity::empty:
      return Style::dim;
    case Activity::silent:
    case Activity::stopped:
      return Style::warning;
    case Activity::failed:
      return Style::bad;
    case Activity::running:
    case Activity::finished:
      break;
  }
  return Style::good;
}

std::string activity_text(const RunStatus& status) {
  switch (status.activity) {
    case Activity::empty:
      return "no events yet";
    case Activity::silent:
      return "silent for " + format_duration(status.silent);
    case Activity::stopped:
      return status.reason.empty() ? "stopped" : status.reason;
    case Activity::running:
    case Activity::failed:
    case Activity::finished:
      break;
  }
  return name_of(status.activity);
}

void add_machine(const RunStatus& status, FrameRows& rows) {
  if (status.model.empty() && std::isnan(status.ranks)) return;
  std::string brief = rows.safe(status.model);
  if (!std::isnan(status.ranks)) brief += ", " + grouped_count(status.ranks, "rank");
  std::string full = brief;
  if (!std::isnan(status.nodes)) {
    const std::string nodes = grouped_count(status.nodes, "node");
    brief += ", " + nodes;
    full += fmt::format(" on {} ({})", nodes, rows.safe(status.hosts));
  }
  if (!status.device.empty()) full += ", " + rows.safe(status.device);
  if (!status.version.empty()) full += ", lockstep " + rows.safe(status.version);
  rows.add(4, {{columns_of(full) <= rows.columns() ? full : brief}});
}

void add_head(const RunStatus& status, FrameRows& rows) {
  const Style style = style_of(status.activity);
  const std::string activity = cut(rows.safe(activity_text(status)), rows.columns());
  const std::size_t remaining = rows.columns() - columns_of(activity);
  const std::string name =
      cut(rows.safe(status.name), remaining - std::min<std::size_t>(remaining, 2));
  rows.add(0, {{name, Style::bold},
               {.text = std::string(remaining - columns_of(name), ' ')},
               {activity, style}});
  if (status.activity == Activity::failed || status.activity == Activity::silent) {
    rows.add(1, {{rows.safe(status.reason), style}});
  }
  add_machine(status, rows);
  rows.add_blank();
}

/// `width` columns, of which the share `done` is filled.
std::string progress_bar(double done, std::size_t width, Charset charset) {
  constexpr std::array parts{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<std::size_t>(done * static_cast<double>(8 * width));
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) text += charset == Charset::ascii ? "=" : "█";
  std::size_t used = eighths / 8;
  if (charset == Charset::unicode && eighths % 8 > 0) {
    text += parts[eighths % 8];
    ++used;
  }
  return text + std::string(width - used, ' ');
}

void add_progress(const RunStatus& status, FrameRows& rows) {
  if (const double done = status.step / status.steps; std::isfinite(done)) {
    const std::string before =
        std::isnan(status.epoch)
            ? ""
            : fmt::format("epoch {}/{} ",
                          grouped(std::fmin(std::floor(status.epoch) + 1, status.epochs)),
                          grouped(status.epochs));
    const std::string after = fmt::format(" {:5.1f} %", std::floor(1000 * done) / 10);
    const std::size_t taken = before.size() + after.size() + 2;
    const std::size_t width = rows.columns() - std::min(rows.columns(), taken);
    rows.add(0, {{before + "["},
                 {progress_bar(std::clamp(done, 0.0, 1.0), width, rows.charset()),
                  style_of(status.activity)},
                 {"]" + after}});
  }
  std::string text = fmt::format("step {}", grouped(status.step));
  if (!std::isnan(status.steps)) text += fmt::format(" of {}", grouped(status.steps));
  if (!std::isnan(status.seconds_left)) {
    text += fmt::format(", {} left", format_duration(status.seconds_left));
  }
  rows.add(1, {{text}});
  rows.add_blank();
}

std::vector<double> newest(const std::vector<double>& values, std::size_t most) {
  const std::size_t count = std::min(values.size(), most);
  return {values.end() - static_cast<std::ptrdiff_t>(count), values.end()};
}

void add_losses(const RunStatus& status, FrameRows& rows) {
  const std::size_t columns = rows.chart_columns();
  rows.add_chart(1, "loss", loss_text(status.loss), newest(status.last_losses, columns),
                 {.most_rows = 6,
                  .style = Style::forward,
                  .value_style = std::isfinite(status.loss) ? Style::bold : Style::bad});
  if (status.all_losses.size() <= 2 * columns) return;  // hardly more than above
  rows.add_chart(7, "  all steps", "", resample(status.all_losses, columns),
                 {.most_rows = 8, .style = Style::forward});
}

void add_validation(const RunStatus& status, FrameRows& rows) {
  rows.add_chart(2, "top-1", percent(status.validation_top1),
                 resample(status.validation_top1s, rows.chart_columns()),
                 {.most_rows = 6, .style = Style::good, .value_style = Style::bold});
  if (std::isnan(status.best_top1)) return;
  const std::string value = FrameRows::value(percent(status.best_top1));
  const std::string at = value + fmt::format("  step {}", grouped(status.best_step));
  std::string average = at;
  if (!std::isnan(status.validation_ema_top1)) {
    average += fmt::format(", EMA top-1 {}", percent(status.validation_ema_top1));
  }
  rows.add_fact(6, "  best", {average, at, value});
}

void add_speed(const RunStatus& status, FrameRows& rows) {
  rows.add_chart(3, "images/s", grouped(status.images_per_second),
                 newest(status.last_speeds, rows.chart_columns()),
                 {.most_rows = 3, .style = Style::data});
  const std::string rate = FrameRows::value(fmt::format("{:.4g}", status.lr));
  std::string norm = rate;
  if (!std::isnan(status.gradient_norm)) {
    norm += fmt::format("  gradient norm {:.4g}", status.gradient_norm);
  }
  rows.add_fact(5, "lr", {norm, rate});
}

struct PhaseStyle {
  const char* brief;
  const char* shade;
  Style style;
};
constexpr std::array<PhaseStyle, phase_names.size()> phase_styles{{
    {"data", "░", Style::data},
    {"fwd", "▒", Style::forward},
    {"bwd", "▓", Style::backward},
    {"comm", "█", Style::communication},
    {"opt", "▚", Style::optimizer},
}};

std::string mark_of(std::size_t phase, Charset charset) {
  return charset == Charset::unicode ? phase_styles[phase].shade
                                     : std::string(1, phase_names[phase][0]);
}

enum class Legend { full, compact, brief };

/// The marks of all phases with their shares. In ASCII, a mark is the first letter of the name.
StyledLine legend(const RunStatus& status, Legend form, const FrameRows& rows) {
  const bool has_marks = rows.charset() == Charset::unicode;
  const bool brief = form == Legend::brief;
  StyledLine line{rows.label("")};
  if (form != Legend::full) line.clear();
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    const PhaseStyle& phase = phase_styles[i];
    const bool last = i + 1 == phase_names.size();
    if (has_marks) line.push_back({mark_of(i, rows.charset()) + (brief ? "" : " "), phase.style});
    line.push_back({fmt::format("{}{}{:.0f}", brief ? phase.brief : phase_names[i],
                                brief ? "" : " ", 100 * status.phases[i] / status.step_seconds),
                    has_marks ? Style::plain : phase.style});
    if (last || form == Legend::full) line.push_back({" %"});
    if (!last) line.push_back({brief ? " " : "  "});
  }
  return line;
}

/// How long each phase of a step takes: a stacked bar and its legend.
void add_step_time(const RunStatus& status, FrameRows& rows) {
  StyledLine line{rows.label("step"), {FrameRows::value(time_text(status.step_seconds)) + "  "}};
  const auto columns = static_cast<double>(rows.chart_columns());
  double sum = 0;
  std::int64_t used = 0;
  for (std::size_t i = 0; i < phase_names.size(); ++i) {
    sum += status.phases[i];
    // Times of a damaged file may be negative, or more than the sum.
    const double share = std::clamp(sum / status.step_seconds, 0.0, 1.0);
    const std::int64_t end = std::llround(share * columns);
    std::string text;
    for (; used < end; ++used) text += mark_of(i, rows.charset());
    line.push_back({std::move(text), phase_styles[i].style});
  }
  rows.add(2, std::move(line));
  StyledLine shares;
  for (const Legend form : {Legend::full, Legend::compact, Legend::brief}) {
    shares = legend(status, form, rows);
    if (columns_of(shares) <= rows.columns()) break;
  }
  rows.add(3, std::move(shares));
  rows.add_blank();
}

void add_slowest(const SlowRank& slow, FrameRows& rows) {
  const std::string rank = fmt::format("rank {} ({})", slow.rank, rows.safe(slow.host));
  const std::string times = fmt::format("{}, {:.1f} times the median rank", rank, slow.last_factor);
  const std::string epoch = grouped(slow.last_epoch + 1);
  rows.add_fact(3, "slowest",
                {fmt::format("{}'s own time a step, in epoch {}, {} in all", times, epoch,
                             grouped_count(static_cast<double>(slow.reports), "report")),
                 fmt::format("{}, in epoch {}", times, epoch), times,
                 fmt::format("{}, {:.1f}x", rank, slow.last_factor)},
                Style::warning);
}

void add_memory(const RunStatus& status, FrameRows& rows) {
  std::vector<std::string> parts;
  if (!std::isnan(status.planned_bytes)) {
    parts.push_back(fmt::format("{} planned", size_text(status.planned_bytes)));
  }
  if (!std::isnan(status.peak_rss)) {
    parts.push_back(fmt::format("peak of rank 0 {}", size_text(status.peak_rss)));
  }
  if (!parts.empty()) rows.add_fact(6, "memory", {fmt::format("{}", fmt::join(parts, ", "))});
}

void add_checkpoint(const RunStatus& status, FrameRows& rows) {
  const std::string at = std::isnan(status.checkpoint_step)
                             ? rows.safe(status.checkpoint->name)
                             : "step " + grouped(status.checkpoint_step);
  const std::string age = fmt::format("{}, {} ago", at, format_duration(status.checkpoint_age));
  std::string save = age;
  if (!std::isnan(status.save_seconds)) save += ", written in " + time_text(status.save_seconds);
  rows.add_fact(2, "saved", {save, age, at});
}

void add_jobs(const RunStatus& status, FrameRows& rows) {
  std::string job = rows.safe(status.holder);
  if (status.jobs > 1) {
    job += fmt::format("{}{} so far", job.empty() ? "" : "; ", grouped_count(status.jobs, "job"));
  }
  if (!job.empty()) rows.add_fact(5, "job", {job});
  if (status.restarts.count == 0) return;
  const std::string count = std::to_string(status.restarts.count);
  rows.add_fact(
      4, "restarts",
      {fmt::format("{}, the last after status {}", count, rows.safe(status.restarts.last)), count});
}

}  // namespace

std::vector<StyledLine> frame_of(const RunStatus& status, FrameSize size, Charset charset) {
  FrameRows rows(size, charset);
  add_head(status, rows);
  if (status.activity != Activity::empty) add_progress(status, rows);
  const bool trained = !status.last_losses.empty();
  const bool validated = !status.validation_top1s.empty();
  if (trained) add_losses(status, rows);
  if (validated) add_validation(status, rows);
  if (trained) add_speed(status, rows);
  if (trained || validated) rows.add_blank();
  if (status.step_seconds > 0 && std::isfinite(status.step_seconds)) add_step_time(status, rows);
  if (status.slowest) add_slowest(*status.slowest, rows);
  add_memory(status, rows);
  if (status.checkpoint) add_checkpoint(status, rows);
  add_jobs(status, rows);
  for (const std::string& note : status.notes) {
    rows.add_fact(6, "note", {rows.safe(note)}, Style::warning);
  }
  return std::move(rows).arrange();
}

std::vector<StyledLine> message_frame(const std::string& message, FrameSize size, Charset charset) {
  return {cut(StyledLine{{printable(message, charset)}}, size.columns)};
}

}  // namespace lockstep::report
