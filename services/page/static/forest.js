// Draws a group: its episodes side by side, or their tree. Each turn is a node; its colour shows its
// advantage, its ring its status.

import { h, svg } from "./dom.js";
import { number, signed, words } from "./format.js";

const ROW = 26, COLUMN = 74, MARGIN = 18, RADIUS = 8;

// group.turns have a `parent`; chosen: index of the chosen turn; choose(index): called for another choice.
export function forest(group, chosen, choose) {
  const { turns } = group;
  const { depth, row, rows } = layout(turns);
  const columns = Math.max(0, ...depth) + 1;
  const x = (i) => MARGIN + (depth[i] + 1) * COLUMN, y = (i) => MARGIN + row[i] * ROW;
  const width = MARGIN * 2 + columns * COLUMN + 20, height = MARGIN * 2 + Math.max(rows - 1, 0) * ROW;
  const strongest = Math.max(1e-9, ...turns.map((turn) => Math.abs(turn.advantage ?? 0)));
  const path = new Set(pathTo(turns, chosen));
  const rootY = turns.length ? (Math.min(...row) + Math.max(...row)) / 2 * ROW + MARGIN : MARGIN;
  const tree = group.summary.kind === "tree";
  const edges = turns.map((turn, i) => {
    if (turn.parent === null && !tree) return null;
    const [x0, y0] = turn.parent === null ? [MARGIN, rootY] : [x(turn.parent), y(turn.parent)];
    const middle = (x0 + x(i)) / 2;
    return svg("path", { class: `edge${path.has(i) ? " on" : ""}`, d: `M${x0} ${y0}C${middle} ${y0} ${middle} ${y(i)} ${x(i)} ${y(i)}` });
  });
  const nodes = turns.map((turn, i) => {
    const node = svg("g", { class: `node ${ring(turn)}${i === chosen ? " chosen" : ""}`, transform: `translate(${x(i)} ${y(i)})`,
      role: "treeitem", tabindex: i === (chosen ?? 0) ? "0" : "-1", "aria-selected": String(i === chosen), "aria-level": String(depth[i] + 1),
      "aria-label": describe(turn, depth[i]), "data-turn": String(i), onclick: () => choose(i) },
    svg("circle", { class: "under", r: RADIUS }),
    svg("circle", { class: credit(turn), r: RADIUS, "fill-opacity": turn.advantage === null ? 1 : 0.25 + 0.75 * Math.abs(turn.advantage) / strongest }),
    turn.status === "answered" ? svg("path", { class: "tick-mark", d: "M-3.5 0l2.5 2.8 4.5-5.4" }) : null,
    failed(turn) ? svg("path", { class: "cross-mark", d: "M-3 -3l6 6M3 -3l-6 6" }) : null,
    svg("title", {}, describe(turn, depth[i])));
    return node;
  });
  const labels = tree ? [] : ends(turns).map((i, k) => svg("text", { class: "label", x: MARGIN, y: y(first(turns, i)) + 4 }, `#${k + 1}`));
  const root = tree ? svg("circle", { class: "root", cx: MARGIN, cy: rootY, r: 5 }) : null;
  const drawing = svg("svg", { class: "forest", width, height, viewBox: `0 0 ${width} ${height}`, role: "tree",
    "aria-label": `${group.summary.kind === "tree" ? "Tree" : "Episodes"} of ${turns.length} turns; arrow keys move between them` },
  edges, root, labels, nodes);
  drawing.addEventListener("keydown", (event) => {
    const at = Number(event.target.dataset?.turn ?? chosen ?? 0);
    const to = step(turns, at, event.key, depth, row);
    if (to === at && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(to);
  });
  return h("div", { class: "scroll forest-box" }, drawing);
}

export function pathTo(turns, index) {
  const path = [];
  for (let at = index; at !== null && at !== undefined && turns[at]; at = turns[at].parent) path.unshift(at);
  return path;
}

export function failed(turn) {
  return turn.status !== "ok" && turn.status !== "answered";
}

// Leaves are one below the other in the order of the turns; a parent is in the middle of its children.
function layout(turns) {
  const children = turns.map(() => []), roots = [];
  const depth = turns.map(() => 0), row = turns.map(() => 0);
  turns.forEach((turn, i) => {
    if (turn.parent === null) roots.push(i);
    else {
      children[turn.parent].push(i);
      depth[i] = depth[turn.parent] + 1; // parents come first
    }
  });
  let next = 0;
  const walk = [...roots].reverse().map((i) => [i, false]);
  while (walk.length) { // not recursive, because an episode may be long
    const [i, left] = walk.pop();
    if (!children[i].length) row[i] = next++;
    else if (left) row[i] = (row[children[i][0]] + row[children[i].at(-1)]) / 2;
    else {
      walk.push([i, true]);
      for (const child of [...children[i]].reverse()) walk.push([child, false]);
    }
  }
  return { depth, row, rows: next };
}

function ends(turns) {
  const parents = new Set(turns.map((turn) => turn.parent));
  return turns.map((_, i) => i).filter((i) => !parents.has(i));
}

function first(turns, index) {
  return pathTo(turns, index)[0];
}

function step(turns, at, key, depth, row) {
  const children = turns.map((_, i) => i).filter((i) => turns[i].parent === at);
  const level = turns.map((_, i) => i).filter((i) => depth[i] === depth[at]).sort((a, b) => row[a] - row[b]);
  const place = level.indexOf(at);
  switch (key) {
    case "ArrowRight": return children[0] ?? at;
    case "ArrowLeft": return turns[at]?.parent ?? at;
    case "ArrowDown": return level[place + 1] ?? at;
    case "ArrowUp": return level[place - 1] ?? at;
    default: return at;
  }
}

function ring(turn) {
  return turn.status === "answered" ? "answered" : failed(turn) ? "failed" : "going";
}

function credit(turn) {
  return turn.advantage === null ? "none" : turn.advantage >= 0 ? "plus" : "minus";
}

function describe(turn, depth) {
  return `Turn ${depth + 1}, ${words(turn.status)}, reward ${number(turn.reward)}, advantage ${turn.advantage === null ? "none" : signed(turn.advantage)}`;
}
