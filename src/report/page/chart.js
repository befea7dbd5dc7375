"use strict";

// A plot with its legend, on top of dygraphs. All plots of the page share the range of x and the point that is read.

const charts = [];
const dashes = {solid: null, dashed: [7, 4], dotted: [2, 3]};

class Chart {
  /**
   * `series()` returns [{name, points, color, dash, dots}]; it is called again when the x axis or the theme changes. `text`
   * writes a value. `options`: {stacked, log (whether the axis can be logarithmic; "initially": it is), marks (x values of
   * vertical lines), fromZero (whether the axis begins at 0), ticks(from, to, pixels) of the x axis}.
   */
  constructor(section, {title, series, text, options = {}}) {
    Object.assign(this, {title, series, text, options, hidden: new Set(), log: options.log === "initially", shown: null});
    this.legend = element("div", {class: "legend", role: "group", "aria-label": `Curves of ${title}`});
    this.plot = element("div", {class: "plot", tabindex: "0", role: "application", "aria-roledescription": "plot",
                                "aria-label": `${title}. Left and right read values.`});
    this.spoken = element("span", {class: "skip", "aria-live": "polite"});
    const buttons = element("div", {class: "buttons"});
    if (options.log) {
      this.logButton = element("button", {type: "button", class: "choice", "aria-pressed": String(this.log),
                                          "aria-label": `Logarithmic axis of ${title}`, click: () => this.toggleLog()}, "log");
      buttons.append(this.logButton);
    }
    section.append(element("div", {class: "section-head"}, element("h2", {}, title), buttons), this.legend, this.plot, this.spoken);
    this.plot.addEventListener("keydown", event => this.key(event));
    this.plot.addEventListener("mouseleave", () => readAll(null));
    charts.push(this);
  }

  draw() {
    const all = this.series();
    this.all = all;
    this.rows = mergeRows(all.map(each => each.points));
    const labels = ["x", ...all.map((_, i) => `series ${i}`)];
    const options = {
      file: this.rows.length > 0 ? this.rows : [[0, ...all.map(() => null)]],
      labels,
      colors: all.map(each => each.color),
      visibility: all.map(each => !this.hidden.has(each.name)),
      series: Object.fromEntries(all.map((each, i) => [labels[i + 1], {
        strokePattern: dashes[each.dash ?? "solid"],
        drawPoints: each.dots ?? false,
        strokeWidth: each.dots ? 2 : 1.6,
      }])),
      gridLineColor: cssColor("grid"),
      axisLineColor: cssColor("line"),
    };
    if (this.graph) {
      this.graph.updateOptions(options);
    } else {
      this.graph = new Dygraph(this.plot, options.file, {...this.fixedOptions(), ...options});
    }
    this.drawLegend();
  }

  fixedOptions() {
    const stacked = this.options.stacked ?? false;
    return {
      customBars: !stacked,
      stackedGraph: stacked,
      stackedGraphNaNFill: "none",
      fillAlpha: stacked ? 0.75 : 0.28,
      connectSeparatedPoints: true,
      legend: "never",
      pointSize: 2.5,
      highlightCircleSize: 4,
      xRangePad: 4,
      yRangePad: 8,
      includeZero: stacked || this.options.fromZero,
      animatedZooms: false,
      axes: {
        x: {axisLabelFormatter: shortNumber, pixelsPerLabel: 70, axisLabelWidth: 60, ...(this.options.ticks && {ticker: this.options.ticks})},
        y: {axisLabelFormatter: shortNumber, axisLabelWidth: 54, pixelsPerLabel: 32, logscale: this.log},
      },
      underlayCallback: (context, area, graph) => this.drawMarks(context, area, graph),
      highlightCallback: (event, x, points, row) => { if (event) readAll(this.rows[row]?.[0] ?? x); },
      zoomCallback: (from, to) => zoomAll(this.graph.isZoomed("x") ? [from, to] : null, this),
      drawCallback: (graph, first) => {
        if (!first && !zooming && graph.isZoomed("x")) zoomAll(graph.xAxisRange(), this);
      },
    };
  }

  /** Vertical lines where jobs of the run begin. */
  drawMarks(context, area, graph) {
    if (!this.options.marks) return;
    context.save();
    context.strokeStyle = cssColor("muted");
    context.setLineDash([3, 4]);
    for (const x of this.options.marks()) {
      const at = graph.toDomXCoord(x);
      if (at < area.x || at > area.x + area.w) continue;
      context.beginPath();
      context.moveTo(at, area.y);
      context.lineTo(at, area.y + area.h);
      context.stroke();
    }
    context.restore();
  }

  drawLegend() {
    this.entries = this.all.map((each, i) => {
      const value = element("span", {class: "value"});
      const button = element("button", {type: "button", "aria-pressed": String(!this.hidden.has(each.name)),
                                        title: `Show or hide ${each.name}`, click: () => this.toggle(i)},
        element("span", {class: `swatch ${this.options.stacked ? "area" : each.dash ?? ""}`, style: {borderTopColor: each.color}}),
        element("span", {class: "name"}, each.name), value);
      return {button, value};
    });
    this.at = element("span", {class: "at"});
    this.legend.replaceChildren(...this.entries.map(entry => entry.button), this.at);
    if (this.all.length === 0) this.legend.replaceChildren(element("span", {class: "note"}, "nothing recorded"));
  }

  toggle(i) {
    const {name} = this.all[i];
    if (!this.hidden.delete(name)) this.hidden.add(name);
    this.entries[i].button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
    this.graph.setVisibility(i, !this.hidden.has(name));
  }

  toggleLog() {
    this.log = !this.log;
    this.logButton.setAttribute("aria-pressed", String(this.log));
    this.graph.updateOptions({axes: {y: {logscale: this.log}}});
  }

  /** Values of each series at x: of the nearest row in which it has one, or null where it has none. */
  valuesAt(x) {
    return this.all.map(({points}) => {
      if (points.length === 0 || x < points[0][0] || x > points[points.length - 1][0]) return null;
      let low = 0;
      let high = points.length - 1;
      while (low < high) {
        const middle = low + high >> 1;
        if (points[middle][0] < x) low = middle + 1; else high = middle;
      }
      if (low > 0 && x - points[low - 1][0] < points[low][0] - x) --low;
      return points[low][1];
    });
  }

  /** Shows the values at x, or none for null. */
  read(x) {
    this.shown = x;
    if (x === null || this.rows.length === 0) {
      this.graph.clearSelection();
      this.at.textContent = "";
      for (const entry of this.entries) entry.value.textContent = "";
      return;
    }
    let row = 0;
    for (let low = 0, high = this.rows.length - 1; low <= high;) {
      const middle = low + high >> 1;
      if (Math.abs(this.rows[middle][0] - x) < Math.abs(this.rows[row][0] - x)) row = middle;
      if (this.rows[middle][0] < x) low = middle + 1; else high = middle - 1;
    }
    this.graph.setSelection(row);
    this.valuesAt(x).forEach((value, i) => { this.entries[i].value.textContent = value === null ? "" : this.valueText(value); });
    this.at.textContent = `at ${view.at(x)}`;
  }

  valueText(value) {
    if (!Array.isArray(value)) return this.text(value);
    const [least, mean, greatest] = value;
    if (!isNumber(mean)) return "not finite";
    return least === greatest ? this.text(mean) : `${this.text(mean)} (${this.text(least)} to ${this.text(greatest)})`;
  }

  key(event) {
    const [from, to] = this.graph.xAxisRange();
    const width = to - from;
    const moves = {ArrowLeft: -1, ArrowRight: 1};
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (moves[event.key] && event.shiftKey) zoomAll([from + moves[event.key] * width / 5, to + moves[event.key] * width / 5]);
    else if (moves[event.key]) this.step(moves[event.key], from, to);
    else if (event.key === "+" || event.key === "=") zoomAll([from + width / 4, to - width / 4]);
    else if (event.key === "-") this.zoomOut(from, to);
    else if (event.key === "0" || event.key === "Escape") zoomAll(null);
    else return;
    event.preventDefault();
  }

  zoomOut(from, to) {
    const width = to - from;
    const [first, last] = this.graph.xAxisExtremes();
    const wider = [Math.max(first, from - width / 2), Math.min(last, to + width / 2)];
    zoomAll(wider[0] === first && wider[1] === last ? null : wider);
  }

  step(direction, from, to) {
    const visible = this.rows.map(row => row[0]).filter(x => x >= from && x <= to);
    if (visible.length === 0) return;
    let next = direction > 0 ? visible[0] : visible[visible.length - 1];
    if (this.shown !== null) {
      const beyond = direction > 0 ? visible.filter(x => x > this.shown) : visible.filter(x => x < this.shown).reverse();
      next = beyond[0] ?? next;
    }
    readAll(next);
    this.spoken.textContent = [this.at.textContent,
      ...this.all.map((each, i) => this.entries[i].value.textContent && `${each.name} ${this.entries[i].value.textContent}`)]
      .filter(Boolean).join(", ");
  }
}

let zooming = false;

/** Shows the range of x in every plot; null: all of it. */
function zoomAll(range, origin = null) {
  if (zooming) return;
  zooming = true;
  view.range = range;
  for (const chart of charts) {
    if (chart === origin) continue;
    if (range) chart.graph.updateOptions({dateWindow: range});
    else chart.graph.resetZoom();
  }
  zooming = false;
  document.getElementById("reset-zoom").disabled = range === null;
  for (const timeline of timelines) timeline.draw();
}

function readAll(x) {
  for (const chart of charts) chart.read(x);
}
