"""RRCG, KBQA-R1's relation retrieval and confidence gating (section IV-A3).

A relation text that a policy writes is scored against the relations that the node actually
has; s is the best score:

    high     s >= tau_high             the best relation is executed
    medium   tau_low <= s < tau_high   the best is executed, and the top k candidates are listed
    low      s < tau_low               nothing is executed; all neighbours are listed with scores

The text has no direction, so both directions are scored; `(R relation)` selects the outgoing
one, as in `(JOIN (R relation) entity)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from kbqa.errors import ConfigurationError
from kbqa.kg.actions import ErrorKind, Failure, Item, ScoredItem
from kbqa.kg.arguments import Argument, ArgumentKind, whole_number
from kbqa.kg.handlers import Surroundings, failure, quote
from kbqa.kg.ranking.encoders import Thresholds
from kbqa.kg.ranking.ranker import Ranker, literalness
from kbqa.kg.store import GraphStore

OUT, IN = "out", "in"

TOP_K = 5
# More than any node's relations; a graph has some thousands in total.
_ALL = 1_000_000
_EXPLICIT = re.compile(r"\(\s*R\s+(?P<name>.*\S)\s*\)", re.DOTALL)

_SCORE = ArgumentKind(
    lambda value: type(value) in (int, float) and 0 <= value <= 1,
    "a number, 0 to 1",
    {"type": "number", "minimum": 0, "maximum": 1},
)
# Arguments of every action with a gate, in addition to its own.
GATE_ARGUMENTS: Mapping[str, Argument] = {
    "tau_high": Argument(_SCORE, "resemblance from which a relation is taken for the one that was meant"),
    "tau_low": Argument(_SCORE, "resemblance below which no relation is taken"),
    "top_k": Argument(whole_number(1, 100), "candidates to list where no relation is certain"),
}


class Tier(StrEnum):
    """How certain it is that the best relation is the one that was meant."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"

    @classmethod
    def of(cls, score: float, thresholds: Thresholds) -> Tier:
        if score >= thresholds.high:
            return cls.HIGH
        return cls.MEDIUM if score >= thresholds.low else cls.LOW


@dataclass(frozen=True, slots=True)
class Neighbours:
    """R(e), the relations of a node: as their head (`out`) and as their tail (`into`)."""

    out: tuple[Item, ...] = ()
    into: tuple[Item, ...] = ()

    @classmethod
    def of(cls, store: GraphStore, nodes: Sequence[str]) -> Neighbours:
        """The relations of several nodes together."""
        tail, head = store.tail_relations(nodes, limit=_ALL), store.head_relations(nodes, limit=_ALL)
        return cls(tail.items, head.items)


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The gate's decision on a relation text.

    Attributes:
        written: the text.
        ranked: candidate relations with their directions, best first, not empty: all neighbours
            in the low tier, at least the top k in the others.
        also: the best relation of the other direction, if it has the same score.
    """

    written: str
    tier: Tier
    ranked: tuple[ScoredItem, ...]
    also: ScoredItem | None = None

    @property
    def relation(self) -> ScoredItem:
        return self.ranked[0]

    def details(self, top_k: int) -> dict[str, Any]:
        """JSON with `tier` and `relation`; `candidates` in the medium tier; `also`, the loser of a tie."""
        told: dict[str, Any] = {"tier": self.tier, "relation": asdict(self.relation)}
        if self.tier is Tier.MEDIUM:
            told["candidates"] = [asdict(item) for item in self.ranked[:top_k]]
        if self.also is not None:
            told["also"] = asdict(self.also)
        return told

    def rejection(self, node: str) -> Failure:
        """The failure of the low tier; its details hold all neighbours as `candidates`."""
        message = (
            f"No relation matched {quote(self.written)} connected to {quote(node)}; the most similar is "
            f"{quote(self.relation.id)}, score={self.relation.score:.3f}"
        )
        told = {"tier": self.tier, "candidates": [asdict(item) for item in self.ranked]}
        return failure(ErrorKind.RELATION_REJECTED, message, told)


@dataclass(frozen=True, slots=True)
class RelationGate:
    """Decides whether a relation text matches an existing relation.

    Attributes:
        ranker: scores relations.
        top_k: number of candidates listed in the medium tier.
    """

    ranker: Ranker
    thresholds: Thresholds
    top_k: int = TOP_K

    @classmethod
    def of(cls, surroundings: Surroundings, arguments: Mapping[str, Any]) -> RelationGate | Failure:
        """The gate with the encoder's thresholds, unless a request's `GATE_ARGUMENTS` override them."""
        ranker = surroundings.schema.relations
        default = ranker.encoder.thresholds
        try:
            thresholds = Thresholds(
                arguments.get("tau_high", default.high), arguments.get("tau_low", default.low)
            )
        except ConfigurationError as error:
            return failure(ErrorKind.MISSING_REQUIRED_FIELDS, f"{error}: send tau_high and tau_low together")
        return cls(ranker, thresholds, arguments.get("top_k", TOP_K))

    def judge(self, written: str, neighbours: Neighbours, *, prefer: str = OUT) -> GateVerdict | None:
        """The verdict on a text; None if there is no neighbour, or none in the requested direction.

        Args:
            written: a relation's name, words for it, or `(R name)`, which selects the outgoing one.
            prefer: the direction that wins a tie.

        Raises:
            EncoderUnavailableError: the encoder does not answer.
        """
        name, explicit = read_relation(written)
        if explicit:
            neighbours = Neighbours(out=neighbours.out)
        ranked = self._ranked(name, neighbours, prefer, self.top_k + 1)
        if not ranked:
            return None
        # All are sorted only if all are listed, or if a tie may extend beyond the ranked ones.
        if ranked[0].score < self.thresholds.low or ranked[0].score == ranked[-1].score:
            ranked = self._ranked(name, neighbours, prefer, None)
        best, others = ranked[0], (item for item in ranked if item.direction != ranked[0].direction)
        also = next(others, None)
        tied = also is not None and also.score == best.score
        return GateVerdict(written, Tier.of(best.score, self.thresholds), ranked, also if tied else None)

    def _ranked(
        self, name: str, neighbours: Neighbours, prefer: str, top_k: int | None
    ) -> tuple[ScoredItem, ...]:
        directions: dict[str, list[str]] = {}
        for direction, found in ((OUT, neighbours.out), (IN, neighbours.into)):
            for item in found:
                directions.setdefault(item.id, []).append(direction)
        items = {item.id: item for item in (*neighbours.out, *neighbours.into)}
        scored = [
            ScoredItem(item.id, item.label, item.score, direction)
            for item in self.ranker.rank(name, items.values(), top_k=top_k)
            for direction in directions[item.id]
        ]
        # Ties: the most literal match, then the preferred direction, then the order of labels and ids.
        scored.sort(key=lambda item: (-item.score, literalness(name, item), item.direction != prefer))
        return tuple(scored)


def read_relation(written: str) -> tuple[str, bool]:
    """The name in a relation text, and whether it is written as `(R name)`."""
    explicit = _EXPLICIT.fullmatch(written.strip())
    return (explicit["name"], True) if explicit else (written, False)
