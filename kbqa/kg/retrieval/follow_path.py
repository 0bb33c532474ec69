"""`follow_path`: the end of a path from an entity, and the relations that can be followed next.

    follow_path {entity: "Heat", path: ["directed_by", "^directed_by"]}     the director's other films

The walk is over sets, like MetaQA's gold answers: it starts at all entities with the given
name, and each relation leads to the union of what it leads to from any of them. The start is
left out of later sets, unless nothing else is there. A chooser reads the relations at the end
of a path, and then asks again with the path extended by one. Each result contains everything
that the next choice needs, independent of earlier actions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbqa.kg.actions import FOLLOW_PATH, ActionResult, ErrorKind, Failure, Success, Triple
from kbqa.kg.arguments import ENTITY, FLAG, QUESTION, TEXT, Argument, ArgumentKind, whole_number
from kbqa.kg.handlers import Surroundings, failure, paging, quote, resolved_entities
from kbqa.kg.ranking.gating import IN, OUT
from kbqa.kg.retrieval.node_relations import INSTRUCTION
from kbqa.kg.specs import ACTIONS, ActionSpec
from kbqa.kg.store import GraphStore, PathStep, Walk

MAX_STEPS = 8
INVERSE = "^"

PATH = ArgumentKind(
    lambda value: isinstance(value, list) and len(value) <= MAX_STEPS and all(map(TEXT.fits, value)),
    f"a list of at most {MAX_STEPS} texts",
    {"type": "array", "items": {"type": "string"}, "maxItems": MAX_STEPS},
)


def _follow_path(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    store, entity, path = surroundings.store, arguments["entity"], arguments["path"]
    entities = resolved_entities(store, entity)
    if not isinstance(entities, tuple):
        return entities
    steps = _steps(store, path)
    if isinstance(steps, Failure):
        return steps
    limit, offset = paging(surroundings, arguments)
    returning = arguments.get("return", False)
    walk = store.follow(entities, steps, limit=limit, offset=offset, returning=returning)
    if not walk.ends.total:
        where = f"for path {quote(' / '.join(path))} from {quote(entity)}"
        return failure(ErrorKind.NO_ENTITIES_FOUND, f"No entities found {where} in knowledge graph")
    return Success(
        walk.ends.items,
        walk.ends.total,
        truncated=not walk.complete or offset + len(walk.ends.items) < walk.ends.total,
        details={
            "relations": _listed(surroundings, arguments, walk),
            "relations_total": len(walk.out) + len(walk.into),
            "via": [list(via) for via in walk.vias],
        },
    )


def _steps(store: GraphStore, path: Sequence[str]) -> list[PathStep] | Failure:
    """Resolve the relations that a path names."""
    steps = []
    for text in path:
        name = text.removeprefix(INVERSE)
        relations = store.resolve_relation(name)
        if not relations:
            return failure(ErrorKind.INVALID_RELATION, f"Relation {quote(name)} not found in KG")
        steps.append(PathStep(relations, inverse=name != text))
    return steps


def _listed(
    surroundings: Surroundings, arguments: Mapping[str, Any], walk: Walk
) -> Sequence[Mapping[str, Any]]:
    """The relations to follow next: all by label, or if there are too many, the best for the question."""
    most = min(arguments.get("relations", surroundings.max_items), surroundings.max_items)
    sides, question = ((IN, walk.into), (OUT, walk.out)), arguments.get("question")
    if len(walk.into) + len(walk.out) <= most or most == 0 or question is None:
        found = sorted((item.label, item.id, direction) for direction, side in sides for item in side)
        return [{"id": id_, "label": label, "direction": direction} for label, id_, direction in found[:most]]
    items = {item.id: item for _, side in sides for item in side}
    directions: dict[str, list[str]] = {id_: [] for id_ in items}
    for direction, side in sides:
        for item in side:
            directions[item.id].append(direction)
    ranker = surroundings.schema.relations
    ranked = [
        {"id": best.id, "label": best.label, "direction": direction, "score": best.score}
        for best in ranker.rank(question, items.values(), top_k=most, instruction=INSTRUCTION)
        for direction in directions[best.id]
    ]
    return ranked[:most]


def _cites(
    arguments: Mapping[str, Any], items: Sequence[str], details: Mapping[str, Any]
) -> list[tuple[Triple, ...]]:
    path, vias = arguments["path"], details.get("via", ())
    told = [_way(path, via, item) for via, item in zip(vias, items, strict=False)]
    return told + [() for _ in items[len(told) :]]


def _way(path: Sequence[str], via: Sequence[str], end: str) -> tuple[Triple, ...]:
    """The triples along a path through the nodes `via`; empty if these are unknown."""
    if not via or len(via) != len(path):
        return ()
    return tuple(
        (target, step.removeprefix(INVERSE), source) if step.startswith(INVERSE) else (source, step, target)
        for step, source, target in zip(path, via, (*via[1:], end), strict=True)
    )


ACTIONS.register(
    ActionSpec(
        FOLLOW_PATH,
        "Follow a path of relations from an entity and list what is at its end, with the relations that "
        "can be followed next (details.relations): those closest to the question, if there are many. Begin "
        "with an empty path, then make it longer by one of the relations that were listed, until its end "
        "answers the question.",
        _follow_path,
        {
            "entity": ENTITY,
            "path": Argument(
                PATH,
                "ids or exact labels of relations, each followed from head to tail, or from tail to head "
                "where it "
                'begins with ^ (a relation of direction "in")',
            ),
        },
        {
            "question": QUESTION,
            "relations": Argument(whole_number(0), "relations to list at most"),
            "return": Argument(
                FLAG, "whether the path may come back to the entity itself, which is left out otherwise"
            ),
        },
        answers="Details: `relations` of the entities at the end, each with `id`, `label` and `direction` "
        "(`out` or `in`), by label, or where there are more than `relations` the best for the `question`, "
        "with `score`; `relations_total` counts them; `via` has for each of the first items the ids from "
        "the entity to that before the item, on one of the ways there.",
        errors=(ErrorKind.ENTITY_NOT_IN_KG, ErrorKind.INVALID_RELATION, ErrorKind.NO_ENTITIES_FOUND),
        cites=_cites,
    )
)
