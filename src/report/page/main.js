"use strict";

// What the page shares: its data, the view of all plots, the theme, printing.

const data = JSON.parse(document.getElementById("data").textContent);
const view = {axis: "steps", range: null, at: x => `${view.axis.replace(/s$/, "")} ${numberText(x, 5)}`};
/** Called when colors change. */
const redrawn = [];
const root = document.documentElement;

function redraw() {
  for (const chart of charts) chart.draw();
  for (const timeline of timelines) timeline.draw();
  for (const draw of redrawn) draw();
}

function setTheme(theme) {
  root.dataset.theme = theme;
  const other = theme === "dark" ? "light" : "dark";
  document.getElementById("theme").textContent = other === "dark" ? "Dark" : "Light";
  document.getElementById("theme").setAttribute("aria-label", `Switch to the ${other} theme`);
  if (charts[0]?.graph) redraw();
}

/** Names of runs; paths where names are the same. */
function labelRuns(runs) {
  for (const run of runs) {
    const same = runs.filter(other => other.name === run.name);
    run.label = same.length > 1 ? run.path : run.name || run.path;
  }
}

function fillHeader(runs) {
  const title = document.getElementById("title");
  const subtitle = document.getElementById("subtitle");
  if (runs.length > 1) {
    title.textContent = `${runs.length} runs`;
    subtitle.textContent = runs.map(run => run.label).join(", ");
    return;
  }
  const [run] = runs;
  title.textContent = run.label;
  const event = run.sessions.at(-1)?.event ?? {};
  const options = new Map(run.options);
  subtitle.textContent = [event.model ?? options.get("model"), options.get("data"), event.ranks && countText(event.ranks, "rank"),
    event.global_batch && `batch ${numberText(event.global_batch)}`, run.path].filter(Boolean).join(" · ");
}

function fillFooter(runs) {
  const merged = runs.flatMap(run => ["steps", "epochs", "evaluations", "checkpoints"].map(name => ({run, name, curve: run[name]})))
    .filter(each => each.curve.stride > 1);
  document.getElementById("decimation").textContent = merged.length === 0
    ? "Every recorded step is shown."
    : "To keep the page small, neighbours are merged: the line is their mean, the band goes from their least to their greatest value, " +
      "so that extremes stay visible. " + merged.map(({run, name, curve}) =>
        `${runs.length > 1 ? `${run.label}: ` : ""}${numberText(curve.rows)} recorded ${name}, ${curve.stride} merged in each point`)
        .join("; ") + ".";
  document.getElementById("made-by").textContent = `Made by lockstep report ${data.version} from ${runs.map(run => run.path).join(", ")}.`;
}

function fillTools(names) {
  const select = document.getElementById("x-axis");
  select.append(...names.map(name => element("option", {value: name}, name)));
  select.closest("label").hidden = Boolean(data.study);
  select.addEventListener("change", () => {
    view.axis = select.value;
    readAll(null);
    zoomAll(null);
    redraw();
  });
  document.getElementById("reset-zoom").addEventListener("click", () => zoomAll(null));
  document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => setTheme(dark.matches ? "dark" : "light"));
  setTheme(dark.matches ? "dark" : "light");
}

/** Paper is white and narrower than the window. */
function preparePrinting() {
  let before = "light";
  const resize = () => {
    for (const chart of charts) chart.graph.resize();
    for (const timeline of timelines) timeline.draw();
  };
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.classList.add("printing");
    setTheme("light");
    resize();
  });
  addEventListener("afterprint", () => {
    root.classList.remove("printing");
    setTheme(before);
    resize();
  });
  let pending = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() => { for (const timeline of timelines) timeline.draw(); });
  });
}

function openRuns(runs) {
  labelRuns(runs);
  fillHeader(runs);
  fillTools(possibleAxes(runs));
  if (runs.length === 1) showOneRun(runs[0]);
  else showSeveralRuns(runs);
  fillFooter(runs);
}

function openStudy(study) {
  const {model, precision, image_size, shard, engine} = study.benchmark ?? {};
  document.getElementById("title").textContent = study.name;
  document.getElementById("subtitle").textContent = ["scaling study", model, image_size && `${image_size} x ${image_size} pixels`, precision,
    shard && shard !== "none" && `--shard ${shard}`, engine, study.path].filter(Boolean).join(" · ");
  view.at = x => countText(Math.round(2 ** x), "node");
  fillTools(["nodes"]);
  showStudy(study);
  document.getElementById("decimation").textContent = "Lines are medians of the repetitions, bands go from the least to the greatest.";
  document.getElementById("made-by").textContent = `Made by lockstep report ${data.version} from ${study.path}.`;
}

if (data.study) openStudy(data.study);
else openRuns(data.runs);
redraw();
preparePrinting();
/** For tests and for a browser's console. */
window.lockstepReport = {data, charts, view};
