"use strict";

// Parts of one run's page that are no plots: summary, what could not be read, memory, slow ranks, jobs, options.

function figure(name, value, detail) {
  return [element("dt", {}, name), element("dd", {}, value, detail ? element("small", {}, detail) : null)];
}

function addSummary(run) {
  const {figures} = run;
  const section = addSection(null, {wide: true});
  const groups = [
    figure("Best top-1, validation", percentText(figures.best_top1),
           isNumber(figures.best_step) ? `at step ${numberText(figures.best_step)}` : "not evaluated"),
    figure("Last top-1, validation", percentText(figures.top1),
           isNumber(figures.ema_top1) ? `average of the weights ${percentText(figures.ema_top1)}` : null),
    figure("Loss", numberText(figures.loss ?? figures.train_loss),
           isNumber(figures.loss) ? `validation; training ${numberText(figures.train_loss)}` : "training"),
    figure("Images/s", numberText(figures.images_per_second, 3), "median"),
    figure("Time", hoursText(figures.hours), `${numberText(figures.step)} steps, ${numberText(figures.epochs, 3)} epochs`),
    figure("State", figures.status, countText(run.sessions.length, "job")),
  ];
  section.append(element("dl", {class: "figures"}, ...groups.map(group => element("div", {}, ...group))));
}

function addNotes(runs) {
  const notes = runs.flatMap(run => {
    const own = [...run.notes];
    if (run.not_finite > 0) {
      own.push(`${countText(run.not_finite, "recorded step")} with a loss that is not finite, the first at step ${numberText(run.first_not_finite)}`);
    }
    if (run.steps.rows + run.epochs.rows + run.evaluations.rows === 0) own.push("no step is recorded yet");
    return own.map(note => runs.length > 1 ? `${run.label}: ${note}` : note);
  });
  showNotes(notes);
}

function showNotes(notes) {
  if (notes.length === 0) return;
  const section = addSection("To note", {wide: true});
  section.classList.add("notice");
  section.append(element("ul", {}, ...notes.map(note => element("li", {}, note))));
}

const memoryParts = ["activations", "parameters", "gradients", "optimizer", "copy"];

function addMemory(run) {
  const last = run.sessions.findLast(session => session.event.memory);
  const plan = last?.event.memory;
  if (!plan) return;
  const total = memoryParts.reduce((sum, part) => sum + (plan[part] ?? 0), 0);
  const onGpus = last.event.device === "gpu";
  const section = addSection("Memory of a rank");
  const most = Math.max(total, run.peak_rss ?? 0);
  const bar = (label, value, parts) => element("div", {},
    element("div", {class: "bar-label"}, element("span", {}, label), element("strong", {}, bytesText(value))),
    element("div", {class: "bar"}, ...parts.map(([bytes, color]) =>
      element("span", {style: {width: `${100 * bytes / most}%`, background: `var(--s${color})`}}))));
  section.append(element("div", {class: "bars"},
    bar(onGpus ? "planned, on the GPU" : "planned", total, memoryParts.map((part, i) => [plan[part] ?? 0, i + 1])),
    isNumber(run.peak_rss) ? bar("greatest resident size of rank 0's process", run.peak_rss, [[run.peak_rss, 6]]) : null));
  section.append(element("div", {class: "keys"}, ...memoryParts.map((part, i) => element("span", {},
    element("span", {class: "swatch area", style: {borderTopColor: `var(--s${i + 1})`}}),
    `${part === "copy" ? "copy to save" : part} ${bytesText(plan[part])}`))));
  section.append(element("p", {class: "note"}, "A process also holds the program and its libraries, batches of images, and MPI's buffers."));
}

function addSlowRanks(run) {
  if (run.slow_ranks.length === 0) return;
  const section = addSection("Slow ranks by host", {wide: true});
  section.append(sortableTable("Slow ranks", [
    {title: "host", value: row => row.host},
    {title: "rank", value: row => row.rank, number: true},
    {title: "reports", value: row => row.reports, text: row => numberText(row.reports), number: true},
    {title: "worst", value: row => row.factor, text: row => `${fixed(row.factor, 1)} times`, number: true},
    {title: "data", value: row => row.data, text: row => secondsText(row.data), number: true},
    {title: "compute", value: row => row.compute, text: row => secondsText(row.compute), number: true},
    {title: "last epoch", value: row => row.epoch, text: row => isNumber(row.epoch) ? numberText(row.epoch + 1) : "-", number: true},
  ], run.slow_ranks, {tall: true}),
  element("p", {class: "note"}, "Times of the median rank's own time a step; seconds a step are medians of the worst report."));
}

function addJobs(run) {
  if (run.sessions.length === 0) return;
  const section = addSection("Jobs, machines and versions", {wide: true, long: true});
  const facts = [["nodes", "nodes"], ["hosts", "hosts"], ["ranks", "ranks"], ["threads", "threads of rank 0"], ["engine", "engine"],
                 ["backend", "computed by"], ["all_reduce", "all-reduce"], ["version", "Lockstep"], ["global_batch", "global batch"]];
  run.sessions.forEach((session, i) => {
    const {event} = session;
    const shown = facts.filter(([name]) => event[name] !== undefined && event[name] !== "");
    const changes = Object.entries(event.changes ?? {});
    const title = `${event.event === "start" ? "Start" : "Resumed"} at step ${numberText(session.at.step)}` +
      (session.end ? `, ${session.reason} at step ${numberText(session.end.step)}` : ", no end recorded");
    section.append(element("details", {open: i === run.sessions.length - 1},
      element("summary", {}, title, changes.length > 0 ? `; ${countText(changes.length, "changed option")}` : ""),
      element("div", {class: "scroll"}, element("table", {"aria-label": title}, element("tbody", {},
        ...shown.map(([name, label]) => element("tr", {}, element("th", {scope: "row"}, label), element("td", {}, String(event[name])))),
        ...changes.map(([name, values]) => element("tr", {class: "changed"}, element("th", {scope: "row"}, `--${name}`),
          element("td", {}, `${values[0] || "none"} → ${values[1] || "none"}`))))))));
  });
}

function addOptions(run) {
  if (run.options.length === 0) return;
  const defaults = new Map(data.defaults);
  const rows = run.options.map(([name, value]) => ({name, value, usual: defaults.get(name) ?? "",
                                                   changed: value !== (defaults.get(name) ?? "")}));
  const section = addSection("Configuration", {wide: true, long: true});
  const filter = element("input", {type: "search", placeholder: "Find an option", "aria-label": "Find an option", input: () => fill()});
  const every = element("button", {type: "button", class: "choice", "aria-pressed": "false", click: () => {
    every.setAttribute("aria-pressed", String(every.getAttribute("aria-pressed") === "false"));
    fill();
  }}, "Show defaults too");
  section.querySelector(".section-head").append(element("div", {class: "buttons"}, filter, every));
  const place = element("div");
  section.append(place);
  function fill() {
    const all = every.getAttribute("aria-pressed") === "true" || filter.value !== "";
    const shown = rows.filter(row => (all || row.changed) && row.name.includes(filter.value.trim()));
    place.replaceChildren(sortableTable("Options", [
      {title: "option", value: row => `--${row.name}`},
      {title: "value", value: row => row.value, text: row => row.value || "none"},
      {title: "default", value: row => row.usual, text: row => row.changed ? row.usual || "none" : "the same"},
    ], shown), element("p", {class: "note"}, all ? "" : `${countText(rows.length - shown.length, "option")} with default values not shown.`));
  }
  fill();
}
