"use strict";

// The page of a scaling study. The x axis is log2 of the number of nodes.

const modes = [{name: "weak", color: 0}, {name: "strong", color: 1}];
const spread = (of, scale) => [of.least * scale, of.median * scale, of.greatest * scale];
const measuredPoints = (study, mode) => study.points.filter(point => point.mode === mode && point.runs > 0);

/** Measured values with their spread, ideal ones, and predicted ones, of both modes. */
function modeCurves(study, {measured, ideal, predicted}) {
  return modes.flatMap(({name, color}) => {
    const points = measuredPoints(study, name);
    const curve = (title, value, style) => ({name: title, color: seriesColor(color), dots: true, ...style,
      points: points.map(point => [Math.log2(point.nodes), value(point)]).filter(([, value]) => value !== null)});
    const line = value => [value, value, value];
    return [
      curve(name, measured),
      ideal && curve(`${name}, ideal`, point => line(ideal(point, points[0])), {dash: "dotted", dots: false}),
      curve(`${name}, predicted`, point => point.predicted && line(predicted(point.predicted)), {dash: "dashed"}),
    ].filter(one => one && one.points.length > 0);
  });
}

/** Ticks at the numbers of nodes that were to be measured, as far as their labels have room. */
function nodeTicks(study) {
  const counts = [...new Set(study.points.map(point => point.nodes))].sort((a, b) => a - b);
  return (from, to, pixels) => {
    const ticks = [];
    for (const nodes of counts) {
      const v = Math.log2(nodes);
      const room = ticks.length === 0 || (v - ticks.at(-1).v) / (to - from) * pixels >= 30;
      if (room) ticks.push({v, label: shortNumber(nodes)});
    }
    return ticks;
  };
}

function addStudyChart(title, series, text, options) {
  new Chart(addSection(null, {chart: true}), {title, series, text, options: {...options, ticks: nodeTicks(data.study)}});
}

/** What a step of one mode spends its time on, in ms. Communication that is hidden is part of computing. */
function addStepParts(study, {name, color}) {
  const points = measuredPoints(study, name);
  if (points.length === 0) return;
  const hidden = points.every(point => isNumber(point.hidden_communication_seconds)) ? point => point.hidden_communication_seconds : null;
  const parts = [
    ["communication, not hidden", color + 2, point => point.exposed_communication_seconds],
    hidden && ["computing, with communication behind it", color + 4, point => Math.min(hidden(point), point.compute_seconds)],
    ["computing", color, point => Math.max(0, point.compute_seconds - (hidden ? hidden(point) : 0))],
  ].filter(Boolean);
  addStudyChart(`Time of a step, ${name}, ms`, () => parts.map(([title, color, seconds]) => ({
    name: title, color: seriesColor(color), dots: true,
    points: points.map(point => [Math.log2(point.nodes), 1000 * seconds(point)]),
  })), value => `${numberText(value, 3)} ms`, {stacked: true});
}

function addStudySummary(study) {
  const groups = [];
  for (const {name} of modes) {
    const last = measuredPoints(study, name).at(-1);
    if (!last) continue;
    groups.push(figure(`${name === "weak" ? "Weak" : "Strong"} scaling`, percentText(last.efficiency.median),
                       `efficiency on ${countText(last.nodes, "node")}`),
                figure(`Images/s, ${name}`, numberText(last.images_per_second.median, 3),
                       `communication not hidden: ${percentText(last.exposed_share)} of a step`));
  }
  const sum = field => study.points.reduce((all, point) => all + point[field], 0);
  groups.push(figure("Measured", `${sum("runs")} of ${sum("wanted")}`, "repetitions of all points"));
  addSection(null, {wide: true}).append(element("dl", {class: "figures"}, ...groups.map(group => element("div", {}, ...group))));
}

function addStudyTable(study) {
  const has = point => point.runs > 0;
  const value = (title, of, write) => ({title, number: true, value: point => has(point) ? of(point) : null,
                                        text: point => has(point) ? write(of(point)) : "missing"});
  const rate = number => fixed(number, 1);
  const columns = [
    {title: "mode", value: point => point.mode},
    {title: "nodes", value: point => point.nodes, text: point => numberText(point.nodes), number: true},
    value("ranks", point => point.ranks, numberText),
    value("batch", point => point.global_batch, numberText),
    value("images/s", point => point.images_per_second.median, rate),
    {title: "least to greatest", number: true, value: point => point.images_per_second.least,
     text: point => has(point) ? `${rate(point.images_per_second.least)} to ${rate(point.images_per_second.greatest)}` : "missing"},
    value("efficiency", point => point.efficiency.median, percentText),
    value("step", point => point.step_seconds, secondsText),
    value("not hidden", point => point.exposed_share, percentText),
  ];
  if (study.points.some(point => point.predicted)) {
    const predicted = (title, of, write) => ({title, number: true, value: point => point.predicted && of(point),
                                              text: point => point.predicted ? write(of(point)) : "-"});
    columns.push(predicted("predicted images/s", point => point.predicted.images_per_second, rate),
                 predicted("measured / predicted", point => point.images_per_second.median / point.predicted.images_per_second, percentText));
  }
  columns.push({title: "runs", value: point => point.runs, text: point => `${point.runs} of ${point.wanted}`, number: true});
  const section = addSection("Points", {wide: true, long: true});
  section.append(sortableTable("Points", columns, study.points));
  section.append(element("p", {class: "note"}, "Images/s, efficiency and times are medians of the repetitions. Efficiency: images/s of a node, " +
    "by those of the fewest nodes that were measured in the same mode. Not hidden: share of a step in which ranks wait for communication."));
}

function addBenchmark(study) {
  if (!study.benchmark) return;
  const {machine, ...options} = study.benchmark;
  const shown = ["model", "width", "image_size", "classes", "precision", "input", "bucket_mb", "shard", "recompute", "threads", "engine"]
    .filter(name => options[name] !== undefined).map(name => [name.replace("_", " "), options[name]]);
  for (const name of ["processor", "version", "date"]) if (machine?.[name]) shown.push([name, machine[name]]);
  addSection("Benchmark", {wide: true, long: true}).append(element("div", {class: "scroll"}, element("table", {"aria-label": "Benchmark"},
    element("tbody", {}, ...shown.map(([name, value]) => element("tr", {}, element("th", {scope: "row"}, name), element("td", {}, String(value))))))));
}

function showStudy(study) {
  const missing = study.points.flatMap(point => point.missing);
  addStudySummary(study);
  showNotes([...study.notes, ...missing.map(name => `${name} is missing; its log is ${name}.log`)]);
  addStudyChart("Images/s", () => modeCurves(study, {
    measured: point => spread(point.images_per_second, 1),
    ideal: (point, first) => first.images_per_second.median / first.nodes * point.nodes,
    predicted: point => point.images_per_second,
  }), value => numberText(value, 4), {log: study.points.some(point => point.runs > 0) && "initially"});
  addStudyChart("Efficiency, %", () => modeCurves(study, {
    measured: point => spread(point.efficiency, 100), ideal: () => 100, predicted: point => 100 * point.efficiency,
  }), value => `${fixed(value, 1)} %`, {fromZero: true});
  for (const mode of modes) addStepParts(study, mode);
  addStudyChart("Communication that is not hidden, % of a step", () => modeCurves(study, {
    measured: point => [100 * point.exposed_share, 100 * point.exposed_share, 100 * point.exposed_share],
    predicted: point => 100 * point.exposed_communication_seconds / point.step_seconds,
  }), value => `${fixed(value, 1)} %`, {fromZero: true});
  addStudyTable(study);
  addBenchmark(study);
}
