// Plots as SVG: lines over steps or seconds, stacked shares, points, histograms. A chart is a card with a title, a
// drawing that fits the card's width, and a line with the values under the pointer.

import { h, replace, svg } from "./dom.js";
import { duration, number, percent, short } from "./format.js";

const HEIGHT = 168, LEFT = 46, RIGHT = 10, TOP = 8, BOTTOM = 22;
const MOST_POINTS = 500; // maximum points drawn per line; more are averaged
const cards = new Set(); // all cards on the page; they show the values of the same step

const widths = new ResizeObserver((entries) => requestAnimationFrame(() => {
  for (const { target } of entries) target.chart?.fit();
}));

// figure: {title, kind, unit, about, source, across = "step"}; data(): returns the current series, see `draw…` below.
export function chart(figure, data) {
  const drawing = svg("svg", { class: "plot", height: HEIGHT, role: "img", tabindex: "0" });
  const readout = h("output", { class: "readout", "aria-live": "off" });
  const card = h("figure", { class: "card chart" },
    h("figcaption", {}, h("h3", {}, figure.title), figure.source ? h("span", { class: "source" }, figure.source) : null,
      figure.about ? h("p", { class: "about" }, figure.about) : null),
    readout, drawing);
  card.chart = { draw, fit, point, card };
  cards.add(card.chart);
  widths.observe(card);

  let view = null, fitted = 0;
  const room = () => Math.round(drawing.getBoundingClientRect().width);
  function fit() {
    if (room() !== fitted) draw();
  }

  function draw() {
    const width = fitted = room();
    if (width < 60) return;
    const series = data();
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const kinds = { line: drawLines, share: drawShares, points: drawPoints, histogram: drawHistogram };
    view = kinds[figure.kind](series, width, figure);
    replace(drawing, view.shapes);
    drawing.setAttribute("aria-label", `${figure.title}: ${view.says}`);
    replace(readout, view.latest);
  }

  // Shows the values at x; null shows the latest values again.
  function point(x) {
    if (!view?.at) return;
    const found = x === null ? null : view.at(x);
    drawing.querySelector(".cursor")?.remove();
    if (found) drawing.append(svg("line", { class: "cursor", x1: found.px, x2: found.px, y1: TOP, y2: HEIGHT - BOTTOM }));
    replace(readout, found ? found.text : view.latest);
    card.chart.x = found ? found.x : null;
  }

  drawing.addEventListener("pointermove", (event) => {
    if (!view?.invert) return;
    const x = view.invert(event.clientX - drawing.getBoundingClientRect().left);
    for (const other of cards) other.point(x);
  });
  drawing.addEventListener("pointerleave", () => cards.forEach((other) => other.point(null)));
  drawing.addEventListener("blur", () => cards.forEach((other) => other.point(null)));
  drawing.addEventListener("keydown", (event) => {
    if (!view?.xs?.length || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    readout.setAttribute("aria-live", "polite");
    const at = view.xs.indexOf(card.chart.x);
    const last = view.xs.length - 1;
    const next = { ArrowLeft: at < 0 ? last : Math.max(0, at - 1), ArrowRight: at < 0 ? last : Math.min(last, at + 1), Home: 0, End: last }[event.key];
    for (const other of cards) other.point(view.xs[next]);
  });
  return card;
}

export function forgetCharts() {
  for (const one of cards) widths.unobserve(one.card);
  cards.clear();
}

export function redrawCharts() {
  for (const one of cards) one.draw();
}

// Exponential smoothing of a line; weight 0 does not smooth.
export function smooth(points, weight) {
  let mean = 0, seen = 0;
  return points.map(([x, y]) => {
    mean = weight * mean + (1 - weight) * y;
    seen = weight * seen + (1 - weight);
    return [x, mean / seen];
  });
}

// series: [{name, points: [[x, y], …], smoothing, and if wanted: colour, marks, band: [[x, low, high], …],
// members: [points, …], drawn faintly}]
function drawLines(series, width, figure) {
  const shown = series.filter((line) => line.points.length);
  if (!shown.length) return empty(width);
  const thinned = shown.map((line, i) => ({ colour: i, band: [], members: [], ...line, points: thin(line.points) }));
  const smoothed = thinned.map((line) => smooth(line.points, line.smoothing ?? 0));
  const bands = thinned.map(({ band, smoothing = 0 }) => [1, 2].map((side) => smooth(band.map((one) => [one[0], one[side]]), smoothing)));
  const members = thinned.map((line) => line.members.map((points) => smooth(points, line.smoothing ?? 0)));
  const faint = thinned.map((line) => line.smoothing && !line.members.length && line.points.length > 2);
  const values = thinned.flatMap((line, i) => [...(faint[i] ? line.points : []), ...smoothed[i], ...members[i].flat()].map(([, y]) => y));
  const x = scale(extent(thinned.flatMap((line) => [line.points, ...line.members].flat().map(([at]) => at))), [LEFT, width - RIGHT]);
  const y = scale(padded(extent(values)), [HEIGHT - BOTTOM, TOP]);
  const shapes = [...axes(x, y, width, figure)];
  // An interval of few curves can be far wider than they are: it ends at the edge of the plot.
  const inside = (points) => points.map(([at, value]) => [at, Math.min(y.domain[1], Math.max(y.domain[0], value))]);
  thinned.forEach((line, i) => {
    const hue = hueOf(line.colour), [low, high] = bands[i].map(inside);
    if (low.length > 1) shapes.push(svg("polygon", { class: `band ${hue}`, points: outline([...high, ...low.toReversed()], x, y) }));
    members[i].forEach((points) => shapes.push(path(points, x, y, `line ${hue} faint`)));
    if (faint[i]) shapes.push(path(line.points, x, y, `line ${hue} faint`));
    shapes.push(line.points.length > 1 ? path(smoothed[i], x, y, `line ${hue}`)
      : svg("circle", { class: `dot ${hue}`, cx: x(line.points[0][0]), cy: y(line.points[0][1]), r: 3 }));
    if (line.marks) smoothed[i].forEach(([at, value]) => shapes.push(svg("circle", { class: `dot ${hue}`, cx: x(at), cy: y(value), r: 2.5 })));
  });
  const xs = [...new Set(thinned.flatMap((line) => line.points.map(([at]) => at)))].sort((a, b) => a - b);
  const tell = (at) => thinned.map((line, i) => {
    const [, value] = nearest(line.points, at);
    return h("span", { class: `curve ${hueOf(line.colour)}` }, shown.length > 1 ? `${line.name} ` : "", h("b", {}, number(value)), figure.unit ? ` ${figure.unit}` : "");
  });
  const says = thinned.map((line) => {
    const ys = line.points.map(([, value]) => value);
    return `${shown.length > 1 ? `${line.name} ` : ""}from ${number(ys[0])} to ${number(ys.at(-1))} over ${line.points.length} records, lowest ${number(Math.min(...ys))}, highest ${number(Math.max(...ys))}`;
  }).join("; ");
  return { shapes, says, xs, invert: x.invert, latest: tell(xs.at(-1)), at: atStep(xs, x, tell, figure.across) };
}

// series: [{name, points}], stacked: the values add up at each x
function drawShares(series, width, figure) {
  const shown = series.filter((part) => part.points.length);
  if (!shown.length) return empty(width);
  const parts = shown.map((part) => thin(smooth(part.points, part.smoothing ?? 0)));
  const xs = parts[0].map(([at]) => at);
  const tops = xs.map(() => 0);
  const totals = xs.map((_, k) => parts.reduce((sum, part) => sum + (part[k]?.[1] ?? 0), 0));
  const x = scale(extent(xs), [LEFT, width - RIGHT]);
  const y = scale([0, figure.whole === false ? Math.max(...totals) || 1 : 1], [HEIGHT - BOTTOM, TOP]);
  const areas = parts.map((part, i) => {
    const below = xs.map((at, k) => [at, tops[k]]);
    xs.forEach((_, k) => { tops[k] += part[k]?.[1] ?? 0; });
    const above = xs.map((at, k) => [at, tops[k]]);
    return svg("polygon", { class: `area c${i}`, points: outline([...above, ...below.reverse()], x, y) });
  });
  const shown_ = figure.whole === false ? (value) => `${number(value)}${figure.unit ? ` ${figure.unit}` : ""}` : percent;
  const tell = (at) => shown.map((part, i) => h("span", { class: `curve c${i}` }, `${part.name} `, h("b", {}, shown_(nearest(part.points, at)[1]))));
  const says = shown.map((part) => `${part.name} from ${shown_(part.points[0][1])} to ${shown_(part.points.at(-1)[1])}`).join("; ");
  return { shapes: [...areas, ...axes(x, y, width, figure)], says, xs, invert: x.invert, latest: tell(xs.at(-1)), at: atStep(xs, x, tell, figure.across) };
}

// series: [{name, points}]: the first and the last points of a run
function drawPoints(series, width, figure) {
  const all = series.flatMap((cloud) => cloud.points);
  if (!all.length) return empty(width);
  const x = scale(padded(extent([0, ...all.map(([at]) => at)])), [LEFT, width - RIGHT]);
  const y = scale(padded(extent(all.map(([, value]) => value))), [HEIGHT - BOTTOM, TOP]);
  const dots = series.flatMap((cloud, i) => cloud.points.map(([at, value]) => svg("circle", { class: `dot c${i} many`, cx: x(at), cy: y(value), r: 3 })));
  const latest = series.map((cloud, i) => h("span", { class: `curve c${i}` }, `${cloud.name} (${cloud.points.length})`));
  const mean = (cloud, axis) => cloud.points.reduce((sum, point) => sum + point[axis], 0) / (cloud.points.length || 1);
  const says = series.map((cloud) => `${cloud.name}: ${cloud.points.length} points, means ${number(mean(cloud, 0))} across and ${number(mean(cloud, 1))} up`).join("; ");
  return { shapes: [...axes(x, y, width, figure), ...dots], says, latest };
}

// series: [{name, counts}]; counts by equal bins of [0, 1]
function drawHistogram(series, width, figure) {
  const shown = series.filter((one) => one.counts.length);
  if (!shown.length) return empty(width);
  const shares = shown.map(({ counts }) => {
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    return counts.map((count) => count / total);
  });
  const bins = shares[0].length;
  const x = scale([0, 1], [LEFT, width - RIGHT]);
  const y = scale([0, Math.max(...shares.flat()) || 1], [HEIGHT - BOTTOM, TOP]);
  const bar = (x(1) - x(0)) / bins / shown.length - 1;
  const bars = shares.flatMap((column, i) => column.map((share, k) => svg("rect", { class: `area c${i}`,
    x: x(k / bins) + i * (bar + 0.5), width: Math.max(1, bar), y: y(share), height: Math.max(0, HEIGHT - BOTTOM - y(share)) })));
  const latest = shown.map((one, i) => h("span", { class: `curve c${i}` }, one.name));
  const says = shown.map((one, i) => `${one.name}: mean ${number(shares[i].reduce((sum, share, k) => sum + share * (k + 0.5) / bins, 0))}`).join("; ");
  return { shapes: [...bars, ...axes(x, y, width, figure)], says, latest };
}

function empty(width) {
  return { shapes: [svg("text", { class: "nothing", x: width / 2, y: HEIGHT / 2 }, "nothing yet")], says: "nothing yet", latest: null };
}

function atStep(xs, x, tell, across = "step") {
  return (wanted) => {
    if (wanted < xs[0] - 0.5 || wanted > xs.at(-1) + 0.5) return null;
    const at = xs.reduce((best, one) => (Math.abs(one - wanted) < Math.abs(best - wanted) ? one : best));
    return { px: x(at), x: at, text: [h("span", { class: "step" }, across === "step" ? `step ${short(at)}` : duration(at)), tell(at)] };
  };
}

function axes(x, y, width, figure) {
  const lines = ticks(y.domain, 4).map((value) => [
    svg("line", { class: "gridline", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }),
    svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 3.5, "text-anchor": "end" }, figure.kind === "share" && figure.whole !== false ? percent(value) : short(value)),
  ]);
  const below = ticks(x.domain, Math.max(2, Math.floor(width / 60)), figure.kind === "line" || figure.kind === "share").map((value) =>
    svg("text", { class: "tick", x: Math.min(x(value), width - (figure.across === "seconds" ? 22 : 0)), y: HEIGHT - 6, "text-anchor": "middle" }, figure.across === "seconds" ? clock(value, x.domain[1]) : short(value)));
  return [...lines.flat(), ...below];
}

// 90 → 90 s, 5400 → 90 min: in the unit in which the longest time is not long
function clock(seconds, longest) {
  const [size, unit] = longest < 300 ? [1, "s"] : longest < 18_000 ? [60, "min"] : [3600, "h"];
  return `${short(seconds / size)} ${unit}`;
}

// Five colours; then the same ones again, dashed.
function hueOf(index) {
  return `c${index % 5}${index % 10 > 4 ? " dashed" : ""}`;
}

function outline(points, x, y) {
  return points.map(([at, value]) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
}

function path(points, x, y, name) {
  const d = points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
  return svg("path", { class: name, d });
}

function scale(domain, range) {
  const [d0, d1] = domain[0] === domain[1] ? [domain[0] - 0.5, domain[1] + 0.5] : domain;
  const to = (value) => range[0] + ((value - d0) / (d1 - d0)) * (range[1] - range[0]);
  to.invert = (pixel) => d0 + ((pixel - range[0]) / (range[1] - range[0])) * (d1 - d0);
  to.domain = [d0, d1];
  return to;
}

function extent(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

function padded([low, high]) {
  if (low === 0 && high === 0) return [0, 1];
  // Values that differ only by rounding count as equal: no number lies between their ticks.
  const spread = high - low, size = Math.max(Math.abs(low), Math.abs(high));
  const room = spread > 1e-9 * size ? 0.06 * spread : 0.1 * size;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

export function ticks([low, high], count, whole = false) {
  const rough = (high - low) / count, magnitude = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 2.5, 5, 10].find((factor) => factor * magnitude >= 0.9 * rough) * magnitude;
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(k * step);
  return found.map((value) => (Math.abs(value) < step * 1e-6 ? 0 : Number(value.toPrecision(12))));
}

function thin(points) {
  const bucket = Math.ceil(points.length / MOST_POINTS);
  if (bucket <= 1) return points;
  const means = [];
  for (let i = 0; i < points.length; i += bucket) {
    const some = points.slice(i, i + bucket);
    means.push([some.at(-1)[0], some.reduce((sum, [, y]) => sum + y, 0) / some.length]);
  }
  return means;
}

function nearest(points, at) {
  return points.reduce((best, point) => (Math.abs(point[0] - at) < Math.abs(best[0] - at) ? point : best));
}

