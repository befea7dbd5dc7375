#include "lockstep/report/comparison.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::report {
namespace {

/// Mean of the last bin; NaN if it has no value.
double last_value(const Curve& curve, const char* name) {
  if (curve.bins() == 0) return unknown;
  return curve.range(curve.bins() - 1, RunRecord::series(curve, name)).mean();
}

double median_value(const Curve& curve, const char* name) {
  const std::size_t series = RunRecord::series(curve, name);
  std::vector<double> values;
  for (std::size_t bin = 0; bin < curve.bins(); ++bin) {
    if (const double mean = curve.range(bin, series).mean(); !std::isnan(mean)) {
      values.push_back(mean);
    }
  }
  if (values.empty()) return unknown;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void find_best(const Curve& evaluations, Figures& figures) {
  double best = -1;
  for (const char* name : {"top1", "ema_top1"}) {
    const std::size_t series = RunRecord::series(evaluations, name);
    for (std::size_t bin = 0; bin < evaluations.bins(); ++bin) {
      const Range& range = evaluations.range(bin, series);
      if (range.count == 0 || !(range.max > best)) continue;
      figures.best_top1 = best = range.max;
      figures.best_step = evaluations.position(bin).step;
    }
  }
}

}  // namespace

Figures figures_of(const RunRecord& run) {
  Figures figures;
  const bool ended = !run.sessions.empty() && run.sessions.back().end;
  figures.status = ended ? run.sessions.back().reason : "no end recorded";
  figures.step = run.last.step;
  figures.hours = run.last.hours;
  figures.not_finite = static_cast<double>(run.not_finite);
  figures.first_not_finite = run.first_not_finite;
  for (const Curve* curve : {&run.steps, &run.epochs}) {
    if (curve->bins() == 0) continue;
    const double samples = curve->position(curve->bins() - 1).samples;
    figures.epochs = std::fmax(figures.epochs, samples / run.epoch_samples);
  }
  find_best(run.evaluations, figures);
  figures.top1 = last_value(run.evaluations, "top1");
  figures.ema_top1 = last_value(run.evaluations, "ema_top1");
  figures.loss = last_value(run.evaluations, "loss");
  figures.train_loss = last_value(run.epochs.bins() > 0 ? run.epochs : run.steps, "loss");
  figures.images_per_second = median_value(run.steps, "images_per_second");
  return figures;
}

std::string option_of(const RunRecord& run, const std::string& name) {
  const auto found = std::ranges::find(run.options, name, &Options::value_type::first);
  return found == run.options.end() ? "" : found->second;
}

std::vector<std::string> differing_options(std::span<const RunRecord> runs) {
  std::vector<std::string> names;
  for (const RunRecord& run : runs) {
    for (const auto& [name, value] : run.options) {
      if (name == "run-dir" || std::ranges::find(names, name) != names.end()) continue;
      const bool differs =
          std::ranges::any_of(runs, [&, &name = name, &value = value](const RunRecord& other) {
            return option_of(other, name) != value;
          });
      if (differs) names.push_back(name);
    }
  }
  return names;
}

std::vector<std::size_t> same_configuration(std::span<const RunRecord> runs) {
  const std::vector<std::string> names = differing_options(runs);
  const auto same = [&](const RunRecord& left, const RunRecord& right) {
    return std::ranges::all_of(names, [&](const std::string& name) {
      return name == "seed" || option_of(left, name) == option_of(right, name);
    });
  };
  std::vector<std::size_t> first(runs.size());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    first[i] = i;
    for (std::size_t j = 0; j < i; ++j) {
      if (runs[i].options.empty() || first[j] != j || !same(runs[i], runs[j])) continue;
      first[i] = j;
      break;
    }
  }
  return first;
}

}  // namespace lockstep::report
