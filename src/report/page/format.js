"use strict";

// How values are written, and how elements are made. Text from a run only ever becomes text of an element, never HTML.

/** An element: properties of `attributes` that are functions are listeners, others attributes. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (name === "style") Object.assign(made.style, value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

const isNumber = value => typeof value === "number" && Number.isFinite(value);

/** "12,345", "0.1234", "1.2e-7": at most `digits` significant digits, integers in full. */
function numberText(value, digits = 4) {
  if (!isNumber(value)) return "-";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en-US");
  const size = Math.abs(value);
  if (size >= 1e-4 && size < 1e15) {
    const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
    return value.toLocaleString("en-US", {maximumFractionDigits: Math.min(places, 20)});
  }
  return value.toExponential(digits - 1);
}

const fixed = (value, places) =>
  isNumber(value) ? value.toLocaleString("en-US", {minimumFractionDigits: places, maximumFractionDigits: places}) : "-";
const percentText = value => isNumber(value) ? `${fixed(100 * value, 2)} %` : "-";

/** For axes: "20k", "1.5M". */
function shortNumber(value) {
  const size = Math.abs(value);
  for (const [unit, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (size >= unit) return `${+(value / (letter === "k" ? 1e3 : unit)).toPrecision(4)}${letter}`;
  }
  return `${+value.toPrecision(4)}`;
}

function secondsText(value) {
  if (!isNumber(value)) return "-";
  if (value < 1e-3) return `${numberText(1e6 * value, 3)} µs`;
  if (value < 1) return `${numberText(1e3 * value, 3)} ms`;
  return `${numberText(value, 3)} s`;
}

function hoursText(hours) {
  if (!isNumber(hours)) return "-";
  const seconds = Math.round(3600 * hours);
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${fixed(hours, 1)} h`;
}

const bytesText = bytes => !isNumber(bytes) ? "-" : bytes >= 1e9 ? `${fixed(bytes / 1e9, 2)} GB` : `${fixed(bytes / 1e6, 1)} MB`;
const countText = (count, what, plural = `${what}s`) => `${numberText(count)} ${count === 1 ? what : plural}`;

/** A CSS variable of the current theme. */
const cssColor = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const seriesColor = index => cssColor(`s${index % 8 + 1}`);
