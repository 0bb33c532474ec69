"""A generated world: a graph and questions about it, of any size, reproducible by seed.

People, places, works, organisations, events with dates, and nodes without names
(CVTs), under Freebase-like relations. Questions have one, two or three hops in
equal parts; no pair of topic entity and relation path occurs in two splits.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kbqa.datasets.splits import Splits
from kbqa.datasets.world.names import draw_names
from kbqa.datasets.world.small_schema import POPULATION, QUESTION_FORMS, RELATIONS, STEPS, WorldStep
from kbqa.trajectory import Hop, Question

Triple = tuple[str, str, str]

MAX_ANSWERS = 3  # a small agent is not asked to list more
MAX_LOOKUPS = 3  # one-hop look-ups for a question, one per node on the way


@dataclass(frozen=True, slots=True)
class World:
    """A graph with names instead of ids, and the type of each name."""

    triples: tuple[Triple, ...]
    types: dict[str, str]  # entity -> type

    def text(self) -> str:
        """Of a file of tab-separated triples."""
        return "".join("\t".join(triple) + "\n" for triple in self.triples)


def generate_world(seed: int, size: float = 1.0) -> World:
    """Generate a graph of about 2,700 * `size` entities with 44 relations."""
    rng = random.Random(f"world/{seed}")
    members = {kind: draw_names(kind, max(4, int(n * size)), rng) for kind, n in POPULATION.items()}
    members["year"] = [str(year) for year in range(1900, 2021)]
    members["date"] = [
        f"{y}-{m:02}-{d:02}" for y in range(1990, 2021) for m in range(1, 13) for d in (3, 14, 25)
    ]
    members["employment"] = [f"m.0{value:05x}" for value in rng.sample(range(16**5), len(members["person"]))]
    triples: list[Triple] = []
    for relation in RELATIONS:
        heads = members[relation.head]
        if relation.name == "people.person.spouse":
            triples.extend(_couples(relation.name, heads, relation.share, rng))
            continue
        for head in heads:
            if rng.random() >= relation.share:
                continue
            count = rng.randint(*relation.tails)
            tails = [tail for tail in rng.sample(members[relation.tail], count) if tail != head]
            if relation.tail == "employment":  # a separate node for each head
                tails = [members["employment"][heads.index(head)]]
            triples.extend((head, relation.name, tail) for tail in tails)
    used = {name for head, _, tail in triples for name in (head, tail)}
    types = {name: kind for kind, names in members.items() for name in names if name in used}
    return World(tuple(triples), types)


def generate_questions(
    world: World,
    seed: int,
    sizes: dict[str, int],
    kg: str,
    *,
    min_answers: int = 1,
    max_answers: int = MAX_ANSWERS,
    max_lookups: int = MAX_LOOKUPS,
) -> Splits:
    """Generate questions with gold paths and complete answer sets.

    Args:
        sizes: number of questions of each split; hop counts share it equally.
        min_answers, max_answers: of a question.
        max_lookups: one-hop look-ups for a question, one per node on the way.
    """

    def fits(topic: str, answers: Sequence[str], lookups: int) -> bool:
        return min_answers <= len(answers) <= max_answers and lookups <= max_lookups and topic not in answers

    rng = random.Random(f"questions/{seed}")
    graph = _Index(world.triples)
    by_type: dict[str, list[str]] = defaultdict(list)
    for name, kind in world.types.items():
        by_type[kind].append(name)
    seen: set[tuple[str, tuple[Hop, ...]]] = set()
    splits: dict[str, list[Question]] = {}
    for split, total in sizes.items():
        questions: list[Question] = []
        for number in range(total):
            hops = number % 3 + 1
            topic, steps, answers = _draw(graph, by_type, hops, seen, fits, rng)
            path = tuple(hop for step in steps for hop in step.hops)
            seen.add((topic, path))
            text = _phrase(topic, steps, rng)
            questions.append(Question(f"{split}-{number:05}", text, answers, (topic,), kg, path=path))
        splits[split] = questions
    return Splits(**{name: tuple(questions) for name, questions in splits.items()})


class _Index:
    def __init__(self, triples: Sequence[Triple]) -> None:
        self._next: dict[tuple[str, Hop], list[str]] = defaultdict(list)
        for head, relation, tail in triples:
            self._next[head, Hop(relation)].append(tail)
            self._next[tail, Hop(relation, inverse=True)].append(head)

    def follow(self, topic: str, path: Sequence[Hop]) -> tuple[list[str], int]:
        """The set at the end of a path, and the number of look-ups for it."""
        frontier, lookups = [topic], 0
        for hop in path:
            lookups += len(frontier)
            frontier = list(dict.fromkeys(t for node in frontier for t in self._next.get((node, hop), ())))
        return frontier, lookups


def _draw(
    graph: _Index,
    by_type: dict[str, list[str]],
    hops: int,
    seen: set[tuple[str, tuple[Hop, ...]]],
    fits: Callable[[str, Sequence[str], int], bool],
    rng: random.Random,
) -> tuple[str, tuple[WorldStep, ...], tuple[str, ...]]:
    """A topic, a chain of steps from it with `hops` hops, and the answers."""
    chains = _CHAINS[hops]
    while True:
        steps = rng.choice(chains)
        topic = rng.choice(by_type[steps[0].head])
        path = tuple(hop for step in steps for hop in step.hops)
        answers, lookups = graph.follow(topic, path)
        if fits(topic, answers, lookups) and (topic, path) not in seen:
            return topic, steps, tuple(sorted(answers))


def _chains(hops: int, head: str | None = None, last: Hop | None = None) -> Iterator[tuple[WorldStep, ...]]:
    """All sequences of steps with that many hops that never go straight back."""
    if hops == 0:
        yield ()
        return
    for step in STEPS:
        first = step.hops[0]
        turns_back = last is not None and first.relation == last.relation and first.inverse != last.inverse
        if len(step.hops) > hops or turns_back or (head is not None and step.head != head):
            continue
        for rest in _chains(hops - len(step.hops), step.tail, step.hops[-1]):
            yield (step, *rest)


_CHAINS = {hops: tuple(_chains(hops)) for hops in (1, 2, 3)}


def _phrase(topic: str, steps: Sequence[WorldStep], rng: random.Random) -> str:
    text = topic
    for step in steps:
        text = rng.choice(step.phrases).format(text)
    return rng.choice(QUESTION_FORMS).format(text)


def _couples(relation: str, people: Sequence[str], share: float, rng: random.Random) -> Iterator[Triple]:
    """Marriages; each is stated from both sides."""
    shuffled = rng.sample(people, int(len(people) * share) // 2 * 2)
    for left, right in zip(shuffled[::2], shuffled[1::2], strict=True):
        yield (left, relation, right)
        yield (right, relation, left)
