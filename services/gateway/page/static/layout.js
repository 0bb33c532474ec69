// Positions of the nodes of a walked forest: entities and relations in columns from left to right or, on a
// narrow canvas, indented one below the other. A new node never comes before an older one.

const ROW = 38, COLUMN_GAP = 34, TREE_GAP = 0.35;
const NARROW_ROW = 34, INDENT = 22;
// Maximum number of leaf entities drawn per relation, largest first; the others are behind a "+ n more".
const MOST = [12, 8, 6, 4, 3, 2, 1];

// width(node): width of the drawn entity, way or remainder; height: available height. Returns
// [{id, kind, of, x, y, width}]; x and y are the centre.
export function place(walk, { width, height, narrow }) {
  const arrange = narrow ? indented : inColumns, row = narrow ? NARROW_ROW : ROW;
  let placed = [];
  for (const most of MOST) {
    placed = arrange(walk, most);
    if (row * (1 + Math.max(0, ...placed.map((one) => one.row))) <= height) break;
  }
  if (narrow) {
    return placed.map((one) => {
      const wide = width(one);
      return { ...one, width: wide, x: one.column * INDENT + wide / 2, y: one.row * NARROW_ROW };
    });
  }
  const widest = [];
  const sized = placed.map((one) => ({ ...one, width: width(one) }));
  for (const one of sized) widest[one.column] = Math.max(widest[one.column] ?? 0, one.width);
  const left = [];
  widest.reduce((x, wide, column) => { left[column] = x; return x + wide + COLUMN_GAP; }, 0);
  return sized.map((one) => ({ ...one, x: left[one.column] + (one.kind === "way" ? widest[one.column] : one.width) / 2, y: one.row * ROW }));
}

function inColumns(walk, most) {
  const placed = [];
  let next = 0;
  const middle = (rows) => (rows[0] + rows.at(-1)) / 2;
  const entity = (one, column) => {
    const at = placed.push({ id: one.id, kind: "entity", of: one, column }) - 1;
    const rows = one.ways.map((way) => {
      const index = placed.push({ id: way.id, kind: "way", of: way, column: column + 1 }) - 1;
      const { shown, hidden } = walk.shown(way, most);
      const below = shown.map((id) => entity(walk.entities.get(id), column + 2));
      if (hidden) {
        below.push(next++);
        placed.push({ id: `+${way.id}`, kind: "more", of: { way, hidden }, column: column + 2, row: below.at(-1) });
      }
      return (placed[index].row = below.length ? middle(below) : next++);
    });
    return (placed[at].row = rows.length ? middle(rows) : next++);
  };
  for (const root of roots(walk)) {
    entity(root, 0);
    next += TREE_GAP;
  }
  return placed;
}

function indented(walk, most) {
  const placed = [];
  const put = (one) => placed.push({ ...one, row: placed.length });
  const entity = (one, column) => {
    put({ id: one.id, kind: "entity", of: one, column });
    for (const way of one.ways) {
      put({ id: way.id, kind: "way", of: way, column: column + 1 });
      const { shown, hidden } = walk.shown(way, most);
      shown.forEach((id) => entity(walk.entities.get(id), column + 2));
      if (hidden) put({ id: `+${way.id}`, kind: "more", of: { way, hidden }, column: column + 2 });
    }
  };
  roots(walk).forEach((root) => entity(root, 0));
  return placed;
}

function roots(walk) {
  return [...walk.entities.values()].filter((entity) => entity.parent === null);
}
