// The walked part of the graph as a forest: entity → way (a relation) → entities. Topic entities are roots.
// An entity is drawn only where it was found first; other ways that find it again get a link to it.

export class Walk {
  constructor() {
    this.entities = new Map(); // id → {id, label, topic, answer, depth, parent: a way, ways: [way]}
    this.ways = new Map(); // id → {id, relation, source, inverse, found: [entity id], links: [entity id], open}
    this.triples = new Map(); // key → {triple, way, entity}
    this.needed = new Set(); // ids that are always shown
  }

  topic(id, label = id) {
    const entity = this.#entity(id, label, null);
    entity.topic = true;
  }

  // labels: id → label, for entities that have one. Returns whether the triple is new.
  add([subject, relation, object], labels = {}) {
    for (const id of [subject, object]) {
      const known = this.entities.get(id);
      if (known && known.label === id && labels[id]) known.label = labels[id];
    }
    const key = keyOf([subject, relation, object]);
    if (this.triples.has(key)) return false;
    // The triple was walked from the end that was already known.
    const inverse = !this.entities.has(subject) && this.entities.has(object);
    const [from, to] = inverse ? [object, subject] : [subject, object];
    const source = this.#entity(from, labels[from], null);
    const way = this.#way(source, relation, inverse);
    const fresh = !this.entities.has(to);
    this.#entity(to, labels[to], way);
    (fresh ? way.found : way.links).push(to);
    this.triples.set(key, { triple: [subject, relation, object], way, entity: to });
    return true;
  }

  answer(id) {
    const entity = this.entities.get(id);
    if (!entity) return;
    entity.answer = true;
    this.needed.add(id);
  }

  need(triples) {
    for (const [subject, , object] of triples) this.needed.add(subject).add(object);
  }

  label(id) {
    return this.entities.get(id)?.label ?? id;
  }

  // The entities of a way to draw (at most `most` leaves, not counting needed ones), and how many are hidden.
  shown(way, most) {
    const needed = (id) => this.entities.get(id).ways.length > 0 || this.needed.has(id);
    let room = way.open ? Infinity : most;
    const left = way.found.filter((id) => !needed(id)).length;
    if (left === room + 1) room += 1; // a "+ 1 more" would take as much space as the entity
    const shown = way.found.filter((id) => needed(id) || room-- > 0);
    return { shown, hidden: way.found.length - shown.length };
  }

  #entity(id, label, parent) {
    let entity = this.entities.get(id);
    if (!entity) {
      const depth = parent ? this.entities.get(parent.source).depth + 1 : 0;
      entity = { id, label: label ?? id, topic: false, answer: false, depth, parent, ways: [] };
      this.entities.set(id, entity);
    }
    return entity;
  }

  #way(source, relation, inverse) {
    const id = JSON.stringify([source.id, relation, inverse]);
    let way = this.ways.get(id);
    if (!way) {
      way = { id, relation, source: source.id, inverse, found: [], links: [], open: false };
      this.ways.set(id, way);
      source.ways.push(way);
    }
    return way;
  }
}

export function keyOf(triple) {
  return JSON.stringify(triple);
}

// people.person.place_of_birth, or an IRI that ends in it → place of birth
export function shortRelation(relation) {
  const name = relation.replace(/[/#]+$/, "").split(/[/#]/).at(-1).split(".").at(-1) || relation;
  try {
    return decodeURIComponent(name).replaceAll("_", " ");
  } catch {
    return name.replaceAll("_", " ");
  }
}
