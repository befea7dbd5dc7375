"use strict";

// The page of one run.

const phases = [["data", "data"], ["forward", "forward"], ["backward", "backward"], ["communication", "communication, not hidden"],
                ["optimizer", "optimizer"]];

/** Longer curves are drawn without a dot at each value. */
const mostDots = 40;

/** Of the metrics after the first one. */
const dashOf = i => i % 2 === 1 ? "dotted" : "dashed";

/** A line of the chart; null if the run has no value of it. */
function line(run, curve, name, title, style, scale = 1) {
  const points = seriesPoints(run, curve, name, view.axis, scale);
  return points.length === 0 ? null : {name: title, points, dash: style.dash, dots: style.dots, color: seriesColor(style.color)};
}

function addChart(title, series, text, options = {}) {
  new Chart(addSection(null, {chart: true}), {title, series: () => series().filter(Boolean), text, options});
}

function showOneRun(run) {
  const {steps, epochs, evaluations} = run;
  const marks = () => run.sessions.slice(1).map(session => axes[view.axis](run, session.at));
  const few = evaluations.step.length <= mostDots;
  const trained = {color: 0};
  const mean = {color: 0, dash: "dashed", dots: epochs.step.length <= mostDots};
  const validated = {color: 1, dots: few};
  const averaged = {color: 2, dots: few};

  addSummary(run);
  addNotes([run]);
  addChart("Loss", () => [
    line(run, steps, "loss", "training", trained),
    line(run, epochs, "loss", "training, mean of the epoch", mean),
    line(run, evaluations, "loss", "validation", validated),
    line(run, evaluations, "ema_loss", "validation of the average", averaged),
  ], value => numberText(value), {marks, log: true});
  addChart("Metrics, %", () => [
    line(run, steps, "top1", "training top-1", trained, 100),
    line(run, epochs, "top1", "training top-1, mean of the epoch", mean, 100),
    ...data.metrics.flatMap(({name, title}, i) => [
      line(run, evaluations, name, `validation ${title}`, i === 0 ? validated : {color: 1, dash: dashOf(i)}, 100),
      line(run, evaluations, `ema_${name}`, `${title} of the average`, i === 0 ? averaged : {color: 2, dash: dashOf(i)}, 100),
    ]),
  ], value => `${fixed(value, 2)} %`, {marks});
  new Timeline(run);
  addChart("Learning rate", () => [line(run, steps, "lr", "learning rate", {color: 3})], value => numberText(value), {marks, log: true, fromZero: true});
  addChart("Images/s", () => [line(run, steps, "images_per_second", "images/s", {color: 5})], value => numberText(value, 3), {marks, fromZero: true});
  addChart("Time of a step by phase, ms", () => phases.map(([name, title], i) => {
    const one = line(run, steps, `seconds.${name}`, title, {color: [4, 0, 7, 1, 2][i]}, 1000);
    if (one) one.points = one.points.map(([x, [, value]]) => [x, value]);
    return one;
  }), value => `${numberText(value, 3)} ms`, {marks, stacked: true});
  addChart("Time of a step, least to greatest, ms", () => [line(run, steps, "seconds", "sum of the phases", {color: 0}, 1000)],
           value => `${numberText(value, 3)} ms`, {marks, log: true, fromZero: true});
  if (steps.series.gradient_norm) {
    addChart("Norm of the gradient", () => [line(run, steps, "gradient_norm", "norm before clipping", {color: 3})],
             value => numberText(value), {marks, log: true});
  }
  addMemory(run);
  addSlowRanks(run);
  if (run.confusion) addConfusion(run.confusion);
  addJobs(run);
  addOptions(run);
}
