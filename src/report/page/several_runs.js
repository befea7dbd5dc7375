"use strict";

// The page that compares runs: one curve for each run, or for each configuration whose seeds are folded.

const comparedCurves = [
  {title: "Validation top-1, %", curve: "evaluations", name: "top1", scale: 100, text: value => `${fixed(value, 2)} %`},
  {title: "Validation top-1 of the average, %", curve: "evaluations", name: "ema_top1", scale: 100, text: value => `${fixed(value, 2)} %`},
  {title: "Validation loss", curve: "evaluations", name: "loss", scale: 1, text: value => numberText(value), log: true},
  {title: "Training loss", curve: "steps", name: "loss", scale: 1, text: value => numberText(value), log: true},
  {title: "Training top-1, %", curve: "steps", name: "top1", scale: 100, text: value => `${fixed(value, 2)} %`},
  {title: "Learning rate", curve: "steps", name: "lr", scale: 1, text: value => numberText(value), log: true},
  {title: "Images/s", curve: "steps", name: "images_per_second", scale: 1, text: value => numberText(value, 3), fromZero: true},
  {title: "Norm of the gradient", curve: "steps", name: "gradient_norm", scale: 1, text: value => numberText(value), log: true},
];

const mean = values => values.reduce((sum, value) => sum + value, 0) / values.length;

/** "92.10 ± 0.20", the sample standard deviation; one value alone as itself. */
function spreadText(values, write) {
  const known = values.filter(isNumber);
  if (known.length < 2) return write(known[0]);
  const deviation = Math.sqrt(known.reduce((sum, value) => sum + (value - mean(known)) ** 2, 0) / (known.length - 1));
  const percent = write(0).endsWith("%");
  const rounded = deviation < 1e-9 * Math.abs(mean(known)) ? 0 : deviation;
  return `${write(mean(known))} ± ${percent ? fixed(100 * rounded, 2) : numberText(rounded, 2)}`;
}

/** Options of a run that differ, except the seed: "lr=0.1, width=16". */
function differenceText(run) {
  const options = new Map(run.options);
  return data.differing.filter(name => name !== "seed").map(name => `${name}=${options.get(name) || "none"}`).join(", ");
}

/** [{label, runs, color}]: curves of the page. */
function curvesOfRuns(runs, folded) {
  if (!folded) return runs.map((run, i) => ({label: run.label, runs: [run], color: i}));
  const groups = new Map();
  runs.forEach((run, i) => {
    const first = data.groups[i];
    if (!groups.has(first)) groups.set(first, []);
    groups.get(first).push(run);
  });
  return [...groups.values()].map((members, i) => ({
    label: members.length === 1 ? members[0].label : `${differenceText(members[0]) || members[0].label} (${members.length} seeds)`,
    runs: members, color: i}));
}

function showSeveralRuns(runs) {
  const hasSeeds = data.groups.some((first, i) => first !== i);
  let folded = hasSeeds;
  let curves = curvesOfRuns(runs, folded);
  const hidden = new Set();

  const chooser = addSection("Runs", {wide: true});
  const legend = element("div", {class: "legend", role: "group", "aria-label": "Runs"});
  chooser.append(legend);
  if (hasSeeds) {
    const fold = element("button", {type: "button", class: "choice", "aria-pressed": "true", id: "fold", click: () => {
      folded = !folded;
      fold.setAttribute("aria-pressed", String(folded));
      hidden.clear();
      rebuild();
    }}, "Fold seeds");
    chooser.querySelector(".section-head").append(element("div", {class: "buttons"}, fold));
    chooser.append(element("p", {class: "note"},
      "Folded: runs whose options differ only in the seed are one curve, their mean, with a band from the least to the greatest."));
  }
  const table = element("div");
  chooser.append(table);
  addNotes(runs);

  for (const compared of comparedCurves) {
    const has = run => run[compared.curve].series[compared.name];
    if (!runs.some(has)) continue;
    addChart(compared.title, () => curves.map(({label, runs: members, color}) => {
      const all = members.map(run => seriesPoints(run, run[compared.curve], compared.name, view.axis, compared.scale));
      const points = all.length === 1 ? all[0] : foldPoints(all);
      return {name: label, points, color: seriesColor(color), dash: ["solid", "dashed", "dotted"][Math.floor(color / 8) % 3],
              dots: compared.curve === "evaluations" && points.length <= mostDots};
    }), compared.text, {log: compared.log, fromZero: compared.fromZero});
  }

  function rebuild() {
    curves = curvesOfRuns(runs, folded);
    table.replaceChildren(comparisonTable(curves));
    drawLegend();
    for (const chart of charts) chart.hidden = new Set(hidden);
    if (charts[0]?.graph) for (const chart of charts) chart.draw();
  }
  function drawLegend() {
    legend.replaceChildren(...curves.map(({label, color}) => {
      const button = element("button", {type: "button", "aria-pressed": String(!hidden.has(label)), click: () => {
        if (!hidden.delete(label)) hidden.add(label);
        button.setAttribute("aria-pressed", String(!hidden.has(label)));
        for (const chart of charts) {
          const i = chart.all.findIndex(each => each.name === label);
          if (i >= 0 && chart.hidden.has(label) !== hidden.has(label)) chart.toggle(i);
        }
      }}, element("span", {class: "swatch", style: {borderTopColor: `var(--s${color % 8 + 1})`}}), element("span", {class: "name"}, label));
      return button;
    }));
  }
  rebuild();
}

/** Options that differ and final figures, of each curve. */
function comparisonTable(curves) {
  const valuesOf = (curve, name) => curve.runs.map(run => run.figures[name]);
  const options = curve => new Map(curve.runs[0].options);
  const column = (title, name, write) => ({title, number: true,
    value: curve => { const known = valuesOf(curve, name).filter(isNumber); return known.length > 0 ? mean(known) : null; },
    text: curve => spreadText(valuesOf(curve, name), write)});
  const folded = curves.some(curve => curve.runs.length > 1);
  const columns = [
    {title: "run", value: curve => curve.label, node: curve => element("span", {class: "run-name", title: curve.runs.map(run => run.path).join("\n")},
      element("span", {class: "swatch", style: {borderTopColor: `var(--s${curve.color % 8 + 1})`}}), curve.label)},
    ...data.differing.map(name => ({title: name, value: curve => folded && name === "seed"
      ? curve.runs.map(run => new Map(run.options).get(name)).join(" ") : options(curve).get(name) ?? ""})),
    column("best top-1", "best_top1", percentText),
    column("top-1", "top1", percentText),
    column("average", "ema_top1", percentText),
    column("loss", "loss", value => numberText(value)),
    column("training loss", "train_loss", value => numberText(value)),
    column("images/s", "images_per_second", value => numberText(value, 3)),
    column("epochs", "epochs", value => numberText(value, 3)),
    column("hours", "hours", value => numberText(value, 3)),
    {title: "state", value: curve => [...new Set(valuesOf(curve, "status"))].join(", ")},
  ].filter(each => !each.number || curves.some(curve => isNumber(each.value(curve))));
  return sortableTable("Runs", columns, curves);
}
