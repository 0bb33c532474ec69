// The walked part of the graph as a file: the drawing as SVG, the triples as CSV, or a query that finds them again.

import { svg } from "./dom.js";
import { termOf, relationOf } from "./copies.js";

export function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// triples: [[subject, relation, object]]; labelOf(id). A spreadsheet must not take a cell for a formula.
export function asCsv(triples, labelOf) {
  const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  const rows = triples.map(([subject, relation, object]) => [subject, labelOf(subject), relation, object, labelOf(object)]);
  return [["subject", "subject label", "relation", "object", "object label"], ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

export function asConstruct(triples) {
  const patterns = triples.map(([subject, relation, object]) => `  ${termOf(subject, relation)} ${relationOf(relation)} ${termOf(object, relation)} .`);
  return `CONSTRUCT WHERE {\n${patterns.join("\n")}\n}`;
}

// nodes: [{x, y, width, height, label, kind, topic, answer}], centres in pixels; edges: [[from, to]] with ends {x, y}.
export function asSvg(nodes, edges, { font, colour }) {
  const pad = 16, left = Math.min(...nodes.map((one) => one.x - one.width / 2)) - pad, top = Math.min(...nodes.map((one) => one.y - one.height / 2)) - pad;
  const right = Math.max(...nodes.map((one) => one.x + one.width / 2)) + pad, bottom = Math.max(...nodes.map((one) => one.y + one.height / 2)) + pad;
  const drawing = svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `${left} ${top} ${right - left} ${bottom - top}`, width: right - left, height: bottom - top, "font-family": font },
    svg("rect", { x: left, y: top, width: right - left, height: bottom - top, fill: colour.back }),
    edges.map(([from, to]) => svg("path", { d: `M${from.x} ${from.y}C${(from.x + to.x) / 2} ${from.y} ${(from.x + to.x) / 2} ${to.y} ${to.x} ${to.y}`, fill: "none", stroke: colour.edge, "stroke-width": 1.4 })),
    nodes.map((one) => [
      svg("rect", { x: one.x - one.width / 2, y: one.y - one.height / 2, width: one.width, height: one.height, rx: one.kind === "entity" ? 7 : one.height / 2,
        fill: one.answer ? colour.accent : one.topic ? colour.soft : one.kind === "entity" ? colour.card : colour.back,
        stroke: one.kind === "entity" ? (one.topic || one.answer ? colour.accent : colour.muted) : "none" }),
      svg("text", { x: one.x, y: one.y, "text-anchor": "middle", "dominant-baseline": "central", "font-size": one.kind === "entity" ? 14 : 12,
        fill: one.answer ? colour["on-accent"] : one.kind === "entity" ? colour.text : colour.muted }, one.label)]));
  return new XMLSerializer().serializeToString(drawing);
}
