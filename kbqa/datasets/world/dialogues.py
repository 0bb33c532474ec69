"""Dialogues of three questions about a world: the second and third leave out what was said before.

    Who directed The Silent Brost?        complete
    Where was he born?                    a pronoun: for the answer, or for what the question names
    And Ada Venn?                         an ellipsis: the question before, about something else
    Who wrote Grey Harbour?               a change of topic: complete again

A pronoun stands for an entity of the turn before, and only if the other things in that turn are of other
kinds: which of two people "she" is, is nobody's to know.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kbqa.datasets.world.facts import Facts
from kbqa.datasets.world.schema import Link
from kbqa.errors import DatasetError

Sort = Literal["opening", "pronoun", "ellipsis", "change of topic"]
FOLLOW_UPS: tuple[Sort, ...] = ("pronoun", "ellipsis", "change of topic")

_TRIES = 2_000
# As subject, as owner and as object.
_PEOPLE, _THING = (("he", "his", "him"), ("she", "her", "her")), ("it", "its", "it")
_ABOUT = ("And {}?", "What about {}?", "and {}", "How about {}?")


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """A question of a dialogue.

    Attributes:
        said: as it is asked.
        meant: the same, in full.
        topic: the entity that it is about.
        answers: ids, sorted.
    """

    sort: Sort
    said: str
    meant: str
    topic: str
    answers: tuple[str, ...]


Dialogue = tuple[DialogueTurn, DialogueTurn, DialogueTurn]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pattern of a question for a relation's tails, and about whom it is."""

    link: Link
    pattern: str
    topic: str


def generate_dialogues(facts: Facts, seed: int, count: int) -> list[Dialogue]:
    """Dialogues in which each pair of follow-ups is equally frequent.

    Raises:
        DatasetError: the world does not have enough to ask about.
    """
    dialogues = _Dialogues(facts, random.Random(f"dialogues/{seed}"))
    sorts = [(first, second) for first in FOLLOW_UPS for second in FOLLOW_UPS]
    return [dialogues.dialogue(*sorts[number % len(sorts)]) for number in range(count)]


class _Dialogues:
    def __init__(self, facts: Facts, rng: random.Random) -> None:
        self._facts, self._rng = facts, rng
        self._links = [link for link in facts.schema.links if link.asks or link.forward]
        self._unique = {
            kind: [entity for entity in members if entity in facts.names and self._is_unique(entity)]
            for kind, members in facts.members.items()
        }

    def dialogue(self, second: Sort, third: Sort) -> Dialogue:
        for _ in range(_TRIES):
            asked = self._new(None)
            if asked is None:
                continue
            turns, mentioned = [self._turn("opening", asked, asked.pattern)], [asked.topic]
            for sort in (second, third):
                mentioned += turns[-1].answers if len(turns[-1].answers) == 1 else ()
                following = self._next(sort, asked, turns[-1], mentioned)
                if following is None:
                    break
                said, asked = following
                turns.append(self._turn(sort, asked, said))
                mentioned.append(asked.topic)
            if len(turns) == 3:
                return turns[0], turns[1], turns[2]
        raise DatasetError(f"the world has no dialogue of {second} and {third}: make it larger")

    def _next(
        self, sort: Sort, asked: _Asked, before: DialogueTurn, mentioned: Sequence[str]
    ) -> tuple[str, _Asked] | None:
        """What is said, as a pattern, and what is asked."""
        match sort:
            case "pronoun":
                latest = [asked.topic, *(before.answers if len(before.answers) == 1 else ())]
                topic = self._rng.choice(latest)
                same = [e for e in latest if e != topic and self._kind(e) == self._kind(topic)]
                following = None if same else self._new(topic)
                if following is None:
                    return None
                forms = self._rng.choice(_PEOPLE) if self._kind(topic) == "person" else _THING
                return _with_pronoun(following.pattern, *forms), following
            case "ellipsis":
                others = [e for e in self._unique[self._kind(asked.topic)] if self._tails(e, asked.link)]
                topic = self._rng.choice(others)  # at least the one that was asked about
                if topic in mentioned:
                    return None
                return self._rng.choice(_ABOUT), _Asked(asked.link, asked.pattern, topic)
            case _:
                following = self._new(None)
                if following is None or following.topic in mentioned:
                    return None
                return following.pattern, following

    def _new(self, topic: str | None) -> _Asked | None:
        """A question for the tails of a relation, about a topic or about anything."""
        of_topic = [link for link in self._links if topic is None or link.head == self._kind(topic)]
        if not of_topic:
            return None
        link = self._rng.choice(of_topic)
        if topic is None:
            heads = self._unique[link.head]
            topic = self._rng.choice(heads) if heads else None
        if topic is None or not self._tails(topic, link):
            return None
        return _Asked(link, self._rng.choice(list(_questions(link))), topic)

    def _turn(self, sort: Sort, asked: _Asked, said: str) -> DialogueTurn:
        name = self._facts.names[asked.topic]
        answers = tuple(sorted(self._tails(asked.topic, asked.link)))
        return DialogueTurn(sort, said.format(name), asked.pattern.format(name), asked.topic, answers)

    def _tails(self, topic: str, link: Link) -> list[str]:
        tails = self._facts.tails.get((topic, self._facts.schema.iri(link.name)), [])
        return [tail for tail in tails if isinstance(tail, str) and tail in self._facts.names]

    def _kind(self, entity: str) -> str:
        return self._facts.kinds[entity]

    def _is_unique(self, entity: str) -> bool:
        return len(self._facts.bearers[self._facts.names[entity]]) == 1


def _questions(link: Link) -> Iterator[str]:
    """Patterns of questions for the tails of a relation."""
    for asked in link.asks:
        yield f"{asked[0].upper()}{asked[1:]}?"
    for phrase in link.forward:
        yield f"What is {phrase}?"


def _with_pronoun(pattern: str, subject: str, owner: str, object_: str) -> str:
    """A pattern with a pronoun for its entity, possessive in place of "{} 's"."""
    for possessive in ("{} 's", "{}'s"):
        if possessive in pattern:
            return pattern.replace(possessive, owner)
    before, _, after = pattern.partition("{}")
    is_object = not after.strip(" ?") or before.endswith((" of ", " in "))
    return pattern.replace("{}", object_ if is_object else subject)
