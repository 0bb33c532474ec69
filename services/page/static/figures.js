// Figures in rows, bars and tables.

import { h, svg } from "./dom.js";

// A bar from 0 to 1 with its interval.
export function track(share, [low, high], paint, thin = false) {
  return svg("svg", { class: `track${thin ? " thin" : ""}`, viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "floor", x: 0, y: 0, width: 100, height: 10 }), [25, 50, 75].map((x) => svg("line", { class: "grid", x1: x, x2: x, y1: 0, y2: 10 })),
    svg("rect", { class: `paint-${paint}`, x: 0, y: 1.5, width: 100 * share, height: 7 }),
    svg("line", { class: "whisker", x1: 100 * low, x2: 100 * high, y1: 5, y2: 5 }), [low, high].map((x) => svg("line", { class: "whisker", x1: 100 * x, x2: 100 * x, y1: 2.5, y2: 7.5 })));
}

export function shareTicks() {
  return h("div", { class: "ticks", "aria-hidden": "true" }, ["0", "0.25", "0.5", "0.75", "1"].map((at) => h("span", {}, at)));
}

// A row of a list of figures: name, bar, value.
export function row(name, about, plot, said, small) {
  return h("div", {}, h("dt", {}, name, about ? h("small", {}, about) : null), h("dd", { class: "plot" }, plot), h("dd", { class: "value" }, said, small ? h("small", {}, small) : null));
}

// A table whose first column names what the others measure. A head is a name, or [name] over a column of words.
export function figures(head, rows) {
  return h("div", { class: "scroll", tabindex: "0" }, h("table", { class: "figures" }, h("thead", {}, h("tr", {}, head.map((name, k) => h("th", { scope: "col", class: k && !Array.isArray(name) ? "number" : null }, name)))), h("tbody", {}, rows)));
}

export function fact(name, about) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, about));
}
