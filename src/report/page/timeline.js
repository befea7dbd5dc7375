"use strict";

// Evaluations, checkpoints, jobs and slow ranks of a run, under the same x axis as the plots.

const timelines = [];
const svgNamespace = "http://www.w3.org/2000/svg";

function svgElement(tag, attributes, ...children) {
  const made = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Shapes of marks around (x, y). */
const shapes = {
  dot: (x, y) => ["circle", {cx: x, cy: y, r: 4}],
  diamond: (x, y) => ["path", {d: `M${x} ${y - 5.5}L${x + 5.5} ${y}L${x} ${y + 5.5}L${x - 5.5} ${y}Z`}],
  triangle: (x, y) => ["path", {d: `M${x} ${y - 5.5}L${x + 5.5} ${y + 5}L${x - 5.5} ${y + 5}Z`}],
  square: (x, y) => ["rect", {x: x - 4.5, y: y - 4.5, width: 9, height: 9}],
};

class Timeline {
  constructor(run) {
    this.run = run;
    if (this.lanes().length === 0) return;
    this.section = addSection("Time line", {wide: true});
    this.section.classList.add("timeline");
    this.svg = svgElement("svg", {role: "img", "aria-label": "Events of the run; the table below lists them"});
    this.section.append(this.svg);
    this.section.append(element("details", {}, element("summary", {}, "All events as a table"), this.table()));
    timelines.push(this);
  }

  /** [{title, shape, color, events: [{at, text}]}] */
  lanes() {
    const {run} = this;
    const events = (curve, text) => curve.step.map((_, i) => ({at: positionAt(curve, i), text: text(i)}));
    const {evaluations, checkpoints, stragglers} = run;
    const value = (name, i) => evaluations.series[name]?.mean[i];
    const more = curve => curve.stride > 1 ? `, the last of ${curve.stride}` : "";
    const lanes = [
      {title: "evaluations", shape: "dot", color: 1, events: events(evaluations, i =>
        [`top-1 ${percentText(value("top1", i))}, loss ${numberText(value("loss", i))}`,
         isNumber(value("ema_top1", i)) ? `average: top-1 ${percentText(value("ema_top1", i))}` : null]
          .filter(Boolean).join("; ") + more(evaluations))},
      {title: "checkpoints", shape: "diamond", color: 2, events: events(checkpoints, () => `saved${more(checkpoints)}`)},
      {title: "jobs begin", shape: "triangle", color: 0, events: run.sessions.map(session => ({
        at: session.at, text: `${session.event.event === "start" ? "start" : "resumed"} on ${countText(session.event.ranks, "rank")}`}))},
      {title: "jobs end", shape: "square", color: 3,
       events: run.sessions.filter(session => session.end).map(session => ({at: session.end, text: session.reason}))},
      {title: "slow ranks", shape: "triangle", color: 6, events: events(stragglers, () => `a rank is slow${more(stragglers)}`)},
    ];
    return lanes.filter(lane => lane.events.length > 0);
  }

  /** That of the plots; if that is everything, also events before the first step. */
  range() {
    const [from, to] = charts[0].graph.xAxisRange();
    if (view.range) return [from, to];
    const all = this.lanes().flatMap(lane => lane.events.map(event => axes[view.axis](this.run, event.at))).filter(isNumber);
    const ends = charts[0].rows.length > 0 ? [from, to] : [];
    return [Math.min(...ends, ...all), Math.max(...ends, ...all)];
  }

  draw() {
    const [from, to] = this.range();
    const width = this.svg.getBoundingClientRect().width || 600;
    const left = 92;
    const lanes = this.lanes();
    const toX = x => left + (to > from ? (x - from) / (to - from) : 0.5) * (width - left - 10);
    const drawn = [];
    lanes.forEach((lane, i) => {
      const y = 14 + 24 * i;
      drawn.push(svgElement("line", {x1: left, x2: width, y1: y, y2: y}),
                 svgElement("text", {x: 0, y: y + 4}, lane.title));
      const color = seriesColor(lane.color);
      for (const event of lane.events) {
        const at = axes[view.axis](this.run, event.at);
        if (!(at >= from && at <= to)) continue;
        const [tag, attributes] = shapes[lane.shape](toX(at), y);
        drawn.push(svgElement(tag, {...attributes, fill: color, class: "mark"},
          svgElement("title", {}, `${lane.title}, step ${numberText(event.at.step)}: ${event.text}`)));
      }
    });
    for (const x of niceTicks(from, to, Math.max(2, Math.floor((width - left) / 110)))) {
      drawn.push(svgElement("text", {x: toX(x), y: 24 * lanes.length + 20, "text-anchor": "middle"}, shortNumber(x)));
    }
    this.svg.setAttribute("height", 24 * lanes.length + 26);
    this.svg.replaceChildren(...drawn);
  }

  table() {
    const rows = this.lanes().flatMap(lane => lane.events.map(event => ({...event, kind: lane.title})));
    rows.sort((a, b) => a.at.step - b.at.step);
    return sortableTable("Events", [
      {title: "step", value: row => row.at.step, text: row => numberText(row.at.step), number: true},
      {title: "hours", value: row => columnAt(this.run, "hours", row.at), text: row => fixed(columnAt(this.run, "hours", row.at), 3), number: true},
      {title: "event", value: row => row.kind},
      {title: "details", value: row => row.text},
    ], rows, {tall: true});
  }
}

/** About `count` round numbers in a range. */
function niceTicks(from, to, count) {
  const raw = (to - from) / count;
  if (!(raw > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= raw);
  const ticks = [];
  for (let x = Math.ceil(from / step) * step; x <= to; x += step) ticks.push(+x.toPrecision(12));
  return ticks;
}
