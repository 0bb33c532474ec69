// The walked part of the graph, drawn by Cytoscape.js, and the same as a list of triples.

import cytoscape from "./cytoscape-3.34.4.esm.min.mjs";
import { h, replace } from "./dom.js";
import { asSvg } from "./exports.js";
import { place } from "./layout.js";
import { Walk, keyOf, shortRelation } from "./walk.js";

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
const SIZES = { entity: 14, way: 12, more: 12 }, PADDING = { entity: 22, way: 14, more: 18 }, HEIGHTS = { entity: 28, way: 20, more: 22 };
const MOST_CHARACTERS = 30; // maximum length of a label in the drawing
const CORNER = 9; // pixels from a node's left side to its downward edges
const NARROW = 560; // pixels: a narrower canvas gets the indented layout
const ZOOM = { least: 0.15, fit: 0.7, most: 2.5 };
const MOVE_MS = 260;
const COLOURS = ["text", "muted", "line", "edge", "card", "back", "accent", "soft", "on-accent"];

// A new node starts at the position of the node that it was found from, so its edge has no length at first;
// Cytoscape.js would warn about that.
cytoscape.warnings(false);
const ruler = document.createElement("canvas").getContext("2d");
const still = matchMedia("(prefers-reduced-motion: reduce)");

// choose(entity): called with {id, label} when an entity is clicked, with null for a click on the background.
export function graph(box, { choose }) {
  const canvas = box.querySelector(".canvas"), list = box.querySelector(".triples"), empty = box.querySelector(".nothing-drawn");
  const cy = cytoscape({ container: canvas, style: style(), layout: { name: "preset" }, minZoom: ZOOM.least, maxZoom: ZOOM.most,
    boxSelectionEnabled: false, autounselectify: true, autoungrabify: true });
  let walk = new Walk(), lit = null, follows = true, drawing = null;

  function draw() {
    drawing ??= requestAnimationFrame(() => { // draw only once for several events
      drawing = null;
      update();
    });
  }

  function update() {
    const narrow = canvas.clientWidth < NARROW;
    const placed = place(walk, { width: widthOf, height: canvas.clientHeight / ZOOM.fit, narrow });
    const ids = new Set(placed.map((one) => one.id));
    const edges = edgesOf(placed, ids, narrow);
    cy.batch(() => {
      const kept = new Set([...ids, ...edges.map((edge) => edge.data.id)]);
      cy.elements().filter((element) => !kept.has(element.id())).remove();
      for (const one of placed) {
        const node = cy.getElementById(one.id);
        const data = { id: one.id, label: textOf(one), width: one.width };
        if (node.empty()) {
          const from = one.kind === "entity" ? one.of.parent?.id : one.kind === "way" ? one.of.source : one.of.way.id;
          const begin = cy.getElementById(from ?? "");
          cy.add({ group: "nodes", data, classes: classesOf(one), position: begin.nonempty() ? { ...begin.position() } : { x: one.x, y: one.y } });
        } else {
          node.data(data);
          node.classes(classesOf(one));
        }
      }
      for (const edge of edges) {
        const drawn = cy.getElementById(edge.data.id);
        if (drawn.empty()) cy.add({ group: "edges", ...edge });
        else {
          drawn.data(edge.data);
          drawn.classes(edge.classes);
        }
      }
    });
    for (const one of placed) move(cy.getElementById(one.id), { x: one.x, y: one.y });
    replace(list, listOf(walk));
    empty.hidden = walk.entities.size > 0;
    canvas.setAttribute("aria-label", `${walk.entities.size} entities and ${walk.triples.size} triples that the agent walked; the list contains the same as text`);
    light(lit);
    if (follows) fit(extent(placed));
  }

  function move(node, position) {
    node.stop(true);
    const at = node.position();
    if (still.matches || (Math.abs(at.x - position.x) < 1 && Math.abs(at.y - position.y) < 1)) node.position(position);
    else node.animate({ position, duration: MOVE_MS, easing: "ease-out-cubic" });
  }

  // Shows the whole box or, if that would be too small to read, its right end, where answers are, and its top.
  function fit({ x1, y1, x2, y2 }) {
    if (x1 > x2) return;
    const pad = 18, narrow = canvas.clientWidth < NARROW, width = canvas.clientWidth - 2 * pad, height = canvas.clientHeight - 2 * pad;
    const zoom = Math.max(ZOOM.fit, Math.min(1, width / (x2 - x1), height / (y2 - y1)));
    const [wide, high] = [width - (x2 - x1) * zoom, height - (y2 - y1) * zoom]; // what is left of the room
    const [left, top] = [narrow ? 0 : wide < 0 ? wide : wide / 2, Math.max(high, 0) / 2];
    view({ zoom, pan: { x: pad + left - x1 * zoom, y: pad + top - y1 * zoom } });
  }

  function view({ zoom, pan }) {
    cy.stop(true);
    if (still.matches || cy.nodes().length < 2) cy.viewport({ zoom, pan });
    else cy.animate({ zoom, pan, duration: MOVE_MS, easing: "ease-out-cubic" });
  }

  // Highlights the evidence of an answer and dims the rest; null ends the highlighting.
  function light(answer) {
    lit = answer;
    const { triples = [], rows = [] } = answer?.evidence ?? {};
    const keys = new Set(triples.map(keyOf));
    const on = new Set(rows.flatMap((row) => Object.values(row).map(({ id }) => id)).filter((id) => walk.entities.has(id)));
    for (const [key, { triple, way, entity }] of walk.triples) {
      if (keys.has(key)) [triple[0], triple[2], way.id, wayEdge(way), linkEdge(way, entity)].forEach((id) => on.add(id));
    }
    cy.batch(() => cy.elements().forEach((element) => {
      element.toggleClass("lit", on.has(element.id()));
      element.toggleClass("dim", on.size > 0 && !on.has(element.id()));
    }));
    for (const item of list.querySelectorAll("li")) item.classList.toggle("lit", keys.has(item.dataset.key));
  }

  // Moves highlighted nodes into view if they are outside.
  function reveal() {
    const seen = cy.extent(), nodes = cy.nodes(".lit");
    const outside = ({ x, y }) => x < seen.x1 || x > seen.x2 || y < seen.y1 || y > seen.y2;
    if (nodes.some((node) => outside(node.position()))) fit(nodes.boundingBox());
  }

  cy.on("tap", "node.entity", ({ target }) => {
    const { id, label } = walk.entities.get(target.id());
    choose({ id, label });
  });
  cy.on("tap", "node.more", ({ target }) => {
    walk.ways.get(target.id().slice(1)).open = true;
    draw();
  });
  cy.on("tap", ({ target }) => target === cy && choose(null));
  cy.on("mouseover", "node", () => canvas.classList.add("pointing"));
  cy.on("mouseout", "node", () => canvas.classList.remove("pointing"));
  cy.on("dragpan pinchzoom scrollzoom", () => { follows = false; });
  // The wheel scrolls the page; with Ctrl or Cmd it zooms.
  canvas.addEventListener("wheel", (event) => cy.userZoomingEnabled(event.ctrlKey || event.metaKey), { capture: true, passive: true });
  canvas.addEventListener("touchstart", () => cy.userZoomingEnabled(true), { capture: true, passive: true });
  const restyle = () => cy.style(style());
  addEventListener("themechange", restyle);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
  new ResizeObserver(() => { cy.resize(); if (walk.entities.size) draw(); }).observe(canvas);

  return {
    reset() {
      walk = new Walk();
      lit = null;
      follows = true;
      draw();
    },
    begin(topics) {
      topics.forEach(({ id, label }) => walk.topic(id, label));
      draw();
    },
    add(triples, labels) {
      const fresh = triples.map((triple) => walk.add(triple, labels)).some(Boolean);
      if (fresh) draw();
    },
    // The evidence of an answer is always drawn, even if there was no room for it before.
    answer({ id, label, evidence }) {
      const triples = evidence.triples ?? [];
      triples.forEach((triple) => walk.add(triple, label ? { [id]: label } : {}));
      walk.need(triples);
      if (id) walk.answer(id);
      draw();
    },
    light(answer) {
      light(answer);
      reveal();
    },
    label: (id) => walk.label(id),
    triples: () => [...walk.triples.values()].map(({ triple }) => triple),
    // The drawing as SVG, in the page's colours; null if nothing is drawn.
    svg() {
      const placed = place(walk, { width: widthOf, height: Infinity, narrow: false });
      if (!placed.length) return null;
      const at = new Map(placed.map((one) => [one.id, one]));
      const side = (one, right) => ({ x: one.x + (right ? 1 : -1) * one.width / 2, y: one.y });
      const edges = edgesOf(placed, new Set(at.keys()), false).map(({ data }) => [side(at.get(data.source), true), side(at.get(data.target), false)]);
      const nodes = placed.map((one) => ({ ...one, label: textOf(one), height: HEIGHTS[one.kind], topic: one.kind === "entity" && one.of.topic, answer: one.kind === "entity" && one.of.answer }));
      return asSvg(nodes, edges, { font: FONT, colour: colours() });
    },
    fit() {
      follows = true;
      update();
    },
    zoom(factor) {
      follows = false;
      const middle = { x: canvas.clientWidth / 2, y: canvas.clientHeight / 2 };
      cy.zoom({ level: cy.zoom() * factor, renderedPosition: middle });
    },
  };
}

function edgesOf(placed, ids, narrow) {
  const at = new Map(placed.map((one) => [one.id, one]));
  const edges = [];
  const edge = (id, source, target, classes) => edges.push({
    data: { id, source, target, ...(narrow ? bend(at.get(source), at.get(target)) : {}) }, classes: `${narrow ? "tree" : "column"} ${classes}` });
  for (const { kind, of: way } of placed) {
    if (kind === "more") edge(`${way.way.id}>+`, way.way.id, `+${way.way.id}`, "");
    if (kind !== "way") continue;
    edge(wayEdge(way), way.source, way.id, way.inverse ? "comes" : "");
    for (const id of way.found) if (ids.has(id)) edge(linkEdge(way, id), way.id, id, way.inverse ? "" : "goes");
    for (const id of way.links) if (ids.has(id)) edges.push({ data: { id: linkEdge(way, id), source: way.id, target: id }, classes: `link ${way.inverse ? "" : "goes"}` });
  }
  return edges;
}

// In the indented layout, an edge goes down and then to the right. Returns the position of its corner along
// the straight line between its ends (weight), and the distance from that line.
function bend(source, target) {
  const right = target.x - target.width / 2 - (source.x - source.width / 2 + CORNER);
  const down = target.y - source.y - HEIGHTS[source.kind] / 2;
  const length = Math.hypot(right, down);
  return { weight: down ** 2 / length ** 2, distance: (right * down) / length };
}

const wayEdge = (way) => `${way.id}>`;
const linkEdge = (way, entity) => `${way.id}>${entity}`;

function extent(placed) {
  return placed.reduce((box, one) => ({
    x1: Math.min(box.x1, one.x - one.width / 2), x2: Math.max(box.x2, one.x + one.width / 2),
    y1: Math.min(box.y1, one.y - HEIGHTS.entity / 2), y2: Math.max(box.y2, one.y + HEIGHTS.entity / 2),
  }), { x1: Infinity, x2: -Infinity, y1: Infinity, y2: -Infinity });
}

function textOf({ kind, of }) {
  const text = kind === "entity" ? of.label : kind === "way" ? shortRelation(of.relation) : `+ ${of.hidden} more`;
  const characters = [...text];
  return characters.length > MOST_CHARACTERS ? `${characters.slice(0, MOST_CHARACTERS - 1).join("")}…` : text;
}

function widthOf(one) {
  ruler.font = `600 ${SIZES[one.kind]}px ${FONT}`;
  return Math.ceil(ruler.measureText(textOf(one)).width) + PADDING[one.kind];
}

function classesOf({ kind, of }) {
  return kind === "entity" ? `entity${of.topic ? " topic" : ""}${of.answer ? " answer" : ""}` : kind;
}

function listOf(walk) {
  if (!walk.triples.size) return h("li", { class: "empty" }, "Nothing has been walked yet.");
  return [...walk.triples].map(([key, { triple: [subject, relation, object] }]) => h("li", { "data-key": key },
    h("span", { class: "end", dir: "auto" }, walk.label(subject)), " ", h("span", { class: "relation", title: relation }, shortRelation(relation)), " ",
    h("span", { class: "end", dir: "auto" }, walk.label(object))));
}

// The page's colours, which neither a canvas nor a file inherits.
function colours() {
  const probe = document.body.appendChild(h("i", { hidden: true }));
  const colour = Object.fromEntries(COLOURS.map((name) => {
    probe.className = `colour-${name}`;
    return [name, getComputedStyle(probe).color];
  }));
  probe.remove();
  return colour;
}

function style() {
  const colour = colours();
  const fading = { "transition-property": "opacity", "transition-duration": still.matches ? 0 : 120 };
  return [
    { selector: "node", style: { label: "data(label)", width: "data(width)", "font-family": FONT, "text-valign": "center", "text-halign": "center",
      "overlay-opacity": 0, "min-zoomed-font-size": 5, ...fading } },
    { selector: "node.entity", style: { height: HEIGHTS.entity, shape: "round-rectangle", "corner-radius": 7, "font-size": SIZES.entity, color: colour.text,
      "background-color": colour.card, "border-width": 1, "border-color": colour.muted } },
    { selector: "node.topic", style: { "background-color": colour.soft, "border-color": colour.accent, "border-width": 2, "font-weight": 600 } },
    { selector: "node.answer", style: { "background-color": colour.accent, "border-color": colour.accent, color: colour["on-accent"], "font-weight": 600 } },
    { selector: "node.way", style: { height: HEIGHTS.way, shape: "round-rectangle", "corner-radius": 10, "font-size": SIZES.way, color: colour.muted, "background-color": colour.back } },
    { selector: "node.more", style: { height: HEIGHTS.more, shape: "round-rectangle", "corner-radius": 11, "font-size": SIZES.more, color: colour.accent,
      "background-color": colour.back, "border-width": 1, "border-style": "dashed", "border-color": colour.line } },
    { selector: "edge", style: { width: 1.4, "line-color": colour.edge, "target-arrow-color": colour.edge, "source-arrow-color": colour.edge, "arrow-scale": 0.9, "overlay-opacity": 0, ...fading } },
    { selector: "edge.column", style: { "curve-style": "round-taxi", "taxi-direction": "rightward", "taxi-turn": "50%", "taxi-radius": 8 } },
    { selector: "edge.tree", style: { "curve-style": "round-segments", "edge-distances": "endpoints", "segment-weights": "data(weight)", "segment-distances": "data(distance)",
      "segment-radii": 6, "source-endpoint": cornerOf, "target-endpoint": "-50% 0" } },
    { selector: "edge.link", style: { "curve-style": "unbundled-bezier", "line-style": "dashed", "control-point-distances": 30, "control-point-weights": 0.5 } },
    { selector: "edge.goes", style: { "target-arrow-shape": "triangle" } },
    { selector: "edge.comes", style: { "source-arrow-shape": "triangle" } },
    { selector: "edge.lit", style: { width: 2.6, "line-color": colour.accent, "target-arrow-color": colour.accent, "source-arrow-color": colour.accent, "z-index": 2 } },
    { selector: "node.way.lit", style: { color: colour.accent, "font-weight": 600 } },
    { selector: "node.entity.lit", style: { "border-color": colour.accent, "border-width": 2 } },
    { selector: ".dim", style: { opacity: 0.3 } },
  ];
}

function cornerOf(edge) {
  const source = edge.source();
  return `${CORNER - source.data("width") / 2}px ${source.height() / 2}px`;
}
