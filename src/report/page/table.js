"use strict";

// Tables whose columns sort.

/**
 * `columns`: [{title, value(row), text(row) or node(row), number}]; the value sorts. Rows are shown in the given order until a
 * heading is pressed.
 */
function sortableTable(caption, columns, rows, {tall = false} = {}) {
  const body = element("tbody");
  const fill = list => body.replaceChildren(...list.map(row => element("tr", {}, ...columns.map((column, i) =>
    element(i === 0 ? "th" : "td", {class: column.number ? "number" : null, scope: i === 0 ? "row" : null},
      column.node ? column.node(row) : column.text ? column.text(row) : String(column.value(row)))))));
  const heads = columns.map(column => {
    const head = element("th", {scope: "col", class: column.number ? "number" : null});
    head.append(element("button", {type: "button", click: () => sort(column, head)}, column.title));
    return head;
  });
  function sort(column, head) {
    // Numbers first show the greatest.
    const before = head.getAttribute("aria-sort");
    const ascending = before === null ? !column.number : before === "descending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    fill([...rows].sort((a, b) => compareValues(column.value(a), column.value(b), ascending ? 1 : -1)));
  }
  fill(rows);
  const table = element("table", {"aria-label": caption}, element("thead", {}, element("tr", {}, ...heads)), body);
  return element("div", {class: tall ? "scroll tall" : "scroll", tabindex: "0", role: "region", "aria-label": caption}, table);
}

/** Unknown values are last in both directions. */
function compareValues(a, b, direction) {
  const unknown = value => value === null || value === undefined || value === "" || Number.isNaN(value);
  if (unknown(a) || unknown(b)) return unknown(a) - unknown(b);
  if (isNumber(+a) && isNumber(+b)) return direction * (+a - +b);
  return direction * String(a).localeCompare(String(b), "en", {numeric: true});
}

/** A section of the page, with a heading if `title` is given. */
function addSection(title, {wide = false, long = false, chart = false} = {}) {
  const section = element("section", {class: [wide && "wide", long && "long", chart && "chart"].filter(Boolean).join(" ")});
  if (title) section.append(element("div", {class: "section-head"}, element("h2", {}, title)));
  document.getElementById("content").append(section);
  return section;
}
