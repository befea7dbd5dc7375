"use strict";

// Curves of a run: columns of `steps`, `epochs`, `evaluations` and so on, against the chosen x axis.

/** Value at `x` of the line through (xs, ys), which is flat outside; both without gaps, `xs` ascending. */
function interpolate(xs, ys, x) {
  if (xs.length === 0) return null;
  if (x <= xs[0]) return ys[0];
  if (x >= xs[xs.length - 1]) return ys[ys.length - 1];
  let low = 0;
  let high = xs.length - 1;
  while (high - low > 1) {
    const middle = low + high >> 1;
    if (xs[middle] <= x) low = middle; else high = middle;
  }
  return ys[low] + (ys[high] - ys[low]) * (x - xs[low]) / (xs[high] - xs[low]);
}

/** The known points of one column against steps, for events that lack it: {xs, ys}. */
function knownPoints(run, column) {
  const points = new Map();
  for (const curve of [run.steps, run.epochs, run.evaluations]) {
    curve[column].forEach((value, i) => { if (isNumber(value)) points.set(curve.step[i], value); });
  }
  for (const session of run.sessions) {
    if (isNumber(session.at[column])) points.set(session.at.step, session.at[column]);
  }
  const xs = [...points.keys()].sort((a, b) => a - b);
  return {xs, ys: xs.map(x => points.get(x))};
}

const axes = {
  steps: (run, at) => at.step,
  epochs: (run, at) => samplesAt(run, at) / run.epoch_samples,
  samples: (run, at) => samplesAt(run, at),
  hours: (run, at) => columnAt(run, "hours", at),
};

function columnAt(run, column, at) {
  if (isNumber(at[column])) return at[column];
  run.known ??= {};
  run.known[column] ??= knownPoints(run, column);
  return interpolate(run.known[column].xs, run.known[column].ys, at.step) ?? NaN;
}
const samplesAt = (run, at) => columnAt(run, "samples", at);

/** The x axes that every run has values for. */
function possibleAxes(runs) {
  const known = (run, name) => run.steps.rows + run.evaluations.rows === 0 ||
    isNumber(axes[name](run, {step: run.figures.step}));
  return Object.keys(axes).filter(name => name === "steps" || runs.every(run => known(run, name)));
}

const positionAt = (curve, i) => ({step: curve.step[i], samples: curve.samples[i], hours: curve.hours[i]});
const positions = (run, curve, axis) => curve.step.map((_, i) => axes[axis](run, positionAt(curve, i)));

/**
 * Points [x, [least, mean, greatest]] of a series, ascending in x. A row without a value, such as a loss of NaN, becomes a gap.
 */
function seriesPoints(run, curve, name, axis, scale = 1) {
  const series = curve.series[name];
  if (!series) return [];
  const points = [];
  positions(run, curve, axis).forEach((x, i) => {
    if (!isNumber(x) || (points.length > 0 && x <= points[points.length - 1][0])) return;
    const mean = series.mean[i];
    if (!isNumber(mean)) points.push([x, [NaN, NaN, NaN]]);
    else points.push([x, [(series.min?.[i] ?? mean) * scale, mean * scale, (series.max?.[i] ?? mean) * scale]]);
  });
  return points;
}

/** Mean and range of several runs' points, at the x values of the run with most of them, as far as all runs reach. */
function foldPoints(all) {
  const lines = all.map(points => points.filter(([, [, mean]]) => isNumber(mean))).filter(points => points.length > 0);
  if (lines.length === 0) return [];
  const base = lines.reduce((most, points) => points.length > most.length ? points : most);
  const end = Math.min(...lines.map(points => points[points.length - 1][0]));
  const begin = Math.max(...lines.map(points => points[0][0]));
  const columns = lines.map(points => ({xs: points.map(point => point[0]), ys: points.map(point => point[1][1])}));
  return base.filter(([x]) => x >= begin && x <= end).map(([x]) => {
    const values = columns.map(({xs, ys}) => interpolate(xs, ys, x));
    return [x, [Math.min(...values), values.reduce((sum, value) => sum + value, 0) / values.length, Math.max(...values)]];
  });
}

/** Rows [x, value of series 1, ...] of lists of points; null where a series has no point. */
function mergeRows(lists) {
  const rows = new Map();
  lists.forEach((points, i) => {
    for (const [x, value] of points) {
      if (!rows.has(x)) rows.set(x, [x, ...lists.map(() => null)]);
      rows.get(x)[i + 1] = value;
    }
  });
  return [...rows.values()].sort((a, b) => a[0] - b[0]);
}
