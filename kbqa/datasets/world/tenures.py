"""Tenures: what somebody was for something, for a time."""

from __future__ import annotations

import random
from collections.abc import Callable

from kbqa.datasets.world.schema import EntityKind, Tenure

NODES = ("term", "period", "tenure", "service", "engagement", "stint", "entry", "record")
"""What the nodes are called that have a begin and an end, after the office."""
OFFICES = (
    *("head", "director", "manager", "chair", "president", "treasurer", "leader", "owner", "supervisor"),
    *("spokesperson", "secretary", "patron", "trustee", "administrator", "deputy"),
)

_OF_HOLDER = (
    *("the {N} of {{}} {{when}}", "{{}} 's {N} {{when}}", "who was the {N} of {{}} {{when}}"),
    *("who was {{}} 's {N} {{when}}", "the one who was {N} of {{}} {{when}}"),
)
_OF_HELD = (
    *("the {Hs} with {{}} as {N} {{when}}", "the {Hs} of which {{}} was {N} {{when}}"),
    *("the {H} that had {{}} as {N} {{when}}", "whose {N} was {{}} {{when}}"),
)
_INTERVALS = (("from", "to"), ("from_date", "to_date"), ("start_date", "end_date"))
_HELD = ("holder", "who", "person")


def draw_tenure(
    office: str,
    node: str,
    head: tuple[str, EntityKind],
    tail: str,
    relation: Callable[[str, str], str],
    rng: random.Random,
) -> Tenure:
    """An office of the members of one kind that those of another kind hold.

    Args:
        node: kind of the nodes.
        head: the kind that has the office, and what it is called.
        tail: the kind that holds it.
        relation: makes the name of a relation of its words and the kind that it begins at.
    """
    kind, called = head
    begins, _ = rng.choice(_INTERVALS)
    words = {"N": office, "H": called.singular, "Hs": called.plural}
    held = rng.choice((office, f"is {office}", *_HELD))
    return Tenure(
        node,
        relation(node if rng.random() < 0.5 else f"{office}s", kind),
        kind,
        relation(held, node),
        tail,
        f"{'_'.join(node.split())}.{begins}",
        of_holder=tuple(pattern.format(**words) for pattern in rng.sample(_OF_HOLDER, 3)),
        of_held=tuple(pattern.format(**words) for pattern in rng.sample(_OF_HELD, 2)),
    )
