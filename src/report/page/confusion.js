"use strict";

// Accuracy of each class and the confusion matrix, from `lockstep eval --confusion`.

const mostCellsShown = 30;

function addConfusion(confusion) {
  const {classes, samples, hits, errors} = confusion;
  const cells = [];
  for (let i = 0; i < errors.length; i += 3) cells.push({truth: errors[i], predicted: errors[i + 1], count: errors[i + 2]});

  const section = addSection("Classes", {wide: true, long: true});
  const right = hits.reduce((sum, count) => sum + count, 0);
  const all = samples.reduce((sum, count) => sum + count, 0);
  section.append(element("p", {class: "note"}, `${countText(all, "sample")} of ${
    countText(classes.length, "class", "classes")}; the most probable class is right for ${percentText(right / all)}.`));
  const columns = element("div", {class: "columns"});
  section.append(columns);

  const rows = classes.map((name, i) => ({name, samples: samples[i], top1: samples[i] > 0 ? hits[i] / samples[i] : null}));
  columns.append(element("div", {}, element("h3", {}, "Accuracy by class"), sortableTable("Accuracy by class", [
    {title: "class", value: row => row.name},
    {title: "samples", value: row => row.samples, text: row => numberText(row.samples), number: true},
    {title: "top-1", value: row => row.top1, text: row => percentText(row.top1), number: true},
    {title: "share", value: row => row.top1, node: row =>
      element("span", {class: "share", style: {width: `${6 * (row.top1 ?? 0)}rem`}})},
  ], rows, {tall: true})));

  const frequent = [...cells].sort((a, b) => b.count - a.count).slice(0, 200);
  columns.append(element("div", {}, element("h3", {}, "Most frequent errors"), sortableTable("Most frequent errors", [
    {title: "true class", value: cell => classes[cell.truth]},
    {title: "predicted", value: cell => classes[cell.predicted]},
    {title: "samples", value: cell => cell.count, text: cell => numberText(cell.count), number: true},
    {title: "of the class", value: cell => cell.count / samples[cell.truth],
     text: cell => percentText(cell.count / samples[cell.truth]), number: true},
  ], frequent, {tall: true})));

  section.append(element("h3", {}, "Confusion matrix"), element("p", {class: "note"},
    "A row for each true class, a column for each predicted class. The color is the share of the row."));
  if (classes.length <= mostCellsShown) section.append(matrixTable(confusion, cells));
  else section.append(heatMap(confusion, cells));
  if (confusion.dropped > 0) {
    section.append(element("p", {class: "note"}, `${numberText(confusion.dropped)} samples of the least frequent errors are not shown.`));
  }
}

function matrixTable({classes, samples, hits}, cells) {
  const counts = classes.map((_, i) => classes.map((_, j) => i === j ? hits[i] : 0));
  for (const cell of cells) counts[cell.truth][cell.predicted] = cell.count;
  const head = element("tr", {}, element("td"), ...classes.map(name => element("th", {scope: "col", title: name}, name)));
  const body = counts.map((row, i) => element("tr", {}, element("th", {scope: "row", title: classes[i]}, classes[i]),
    ...row.map((count, j) => element("td", {
      class: i === j ? "hit" : null,
      title: `${classes[i]} predicted as ${classes[j]}: ${count}`,
      style: {background: count > 0 ? `rgba(var(--heat), ${0.06 + 0.4 * count / samples[i]})` : ""},
    }, count === 0 ? "" : numberText(count)))));
  return element("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": "Confusion matrix"},
    element("table", {class: "matrix"}, element("thead", {}, head), element("tbody", {}, ...body)));
}

function heatMap({classes, samples, hits}, cells) {
  const count = classes.length;
  const side = Math.min(count, 1500);
  const canvas = element("canvas", {class: "heat-map", width: side, height: side, role: "img",
    "aria-label": "Confusion matrix; the tables above list its values"});
  canvas.style.width = `${Math.max(side, Math.min(720, side * Math.ceil(720 / side)))}px`;
  const readout = element("p", {class: "note"}, "Point at the matrix to read it.");
  const known = new Map(cells.map(cell => [cell.truth * count + cell.predicted, cell.count]));
  hits.forEach((value, i) => known.set(i * count + i, value));
  const draw = () => {
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, side, side);
    const scale = side / count;
    for (const [cell, value] of known) {
      const truth = Math.floor(cell / count);
      const share = value / samples[truth];
      if (!(share > 0)) continue;
      context.fillStyle = `rgba(${cssColor("heat")}, ${Math.min(1, 0.15 + share)})`;
      context.fillRect(cell % count * scale, truth * scale, Math.max(1, scale), Math.max(1, scale));
    }
  };
  canvas.addEventListener("mousemove", event => {
    const box = canvas.getBoundingClientRect();
    const predicted = Math.min(count - 1, Math.floor((event.clientX - box.left) / box.width * count));
    const truth = Math.min(count - 1, Math.floor((event.clientY - box.top) / box.height * count));
    if (truth < 0 || predicted < 0) return;
    readout.textContent = `${classes[truth]} predicted as ${classes[predicted]}: ${numberText(known.get(truth * count + predicted) ?? 0)}`;
  });
  redrawn.push(draw);
  return element("div", {}, canvas, readout);
}
