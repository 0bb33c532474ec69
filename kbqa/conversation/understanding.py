"""Writes the complete question that a follow-up question means.

A question that names what it is about, without pronouns, is complete: the topic may have changed. Otherwise,
after "Who directed Heat?" (Michael Mann):

    Where was he born?        → Where was Michael Mann born?     a reference: its antecedent's name
    When was it released?     → When was Heat released?
    And Collateral?           → Who directed Collateral?         a fragment: another name in the question
    And the producer?         → What is the producer of Heat?    another property of what it was about

What belongs to somebody ("and her brother?") is put in that place if it is of the same kind, or after "of":
"Where was Sara born?" becomes "Where was Sara's brother born?". Otherwise it is asked for itself: "What is
Heat's budget?".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kbqa.conversation.acquaintances import Acquaintances
from kbqa.conversation.antecedents import Candidate, asked_kinds, candidates, choose
from kbqa.conversation.exchanges import Exchange, Name, Thing
from kbqa.conversation.fragments import (
    Fragment,
    fragment_of,
    property_after,
    property_before,
    with_question_word,
    without_lead,
)
from kbqa.conversation.nouns import PEOPLE
from kbqa.conversation.references import Reference, Sort, references
from kbqa.errors import ConversationError
from kbqa.kg.actions import Mention

_DETERMINER = re.compile(r"^(?:the|a|an|that|this)\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Understood:
    """A complete question.

    Attributes:
        question: its text.
        names: the entities that it names, as far as the conversation knows them.
        topic: as in `Exchange`.
        is_changed: whether the text is not the one that was said.
    """

    question: str
    names: tuple[Name, ...] = ()
    topic: tuple[int, int] | None = None
    is_changed: bool = False

    def topics(self, graph: Acquaintances) -> tuple[str, ...]:
        """The ids of what it names, if they would not be found by its text alone; otherwise empty.

        Raises:
            GraphNotFoundError, GraphUnavailableError: as the graph.
        """
        meant = tuple(dict.fromkeys(name.id for name in self.names))
        if not self.is_changed or not meant:
            return ()
        (found,) = graph.mentions([self.question])
        return () if {mention.id for mention in found} == set(meant) else meant


def understand(said: str, exchanges: Sequence[Exchange], graph: Acquaintances) -> Understood:
    """The complete question that is meant.

    Args:
        exchanges: the conversation so far, the latest last.

    Raises:
        ConversationError: it refers to something that was not mentioned.
        GraphNotFoundError, GraphUnavailableError: as the graph.
    """
    fragment = fragment_of(said)
    if not exchanges and fragment is None and not references(said):
        return Understood(said)
    return _Reading(said, exchanges, graph).understood(fragment)


class _Reading:
    """A question that is read after others."""

    def __init__(self, said: str, exchanges: Sequence[Exchange], graph: Acquaintances) -> None:
        self._said, self._exchanges, self._graph = said, exchanges, graph
        (mentions,) = graph.mentions([said])
        self._names = _names(mentions)

    def understood(self, fragment: Fragment | None) -> Understood:
        resolved = self._resolved()
        if fragment is None:
            clause = without_lead(resolved.question)
            return _moved(resolved, clause) if clause != resolved.question else resolved
        if not self._exchanges:
            if fragment.is_marked:
                raise ConversationError(self._said)
            return resolved
        return self._completed(fragment, resolved)

    def _resolved(self) -> Understood:
        """The question with names in place of its references."""
        found = references(self._said, [(name.start, name.end) for name in self._names])
        if any(reference.sort is Sort.KIND for reference in found) and self._names:
            found = [reference for reference in found if not reference.text.lower().startswith("the ")]
        if not found:
            return Understood(self._said, self._names)
        stripped = " ".join(_without(self._said, found).split())
        text, names = self._said, list(self._names)
        chosen: Candidate | None = None
        for reference in reversed(found):
            near = [name for name in self._names if name.end <= reference.start]
            known = candidates(stripped, self._exchanges, near, self._graph)
            chosen = choose(reference, known, asked_kinds(stripped) - PEOPLE)
            if chosen is None and reference.sort is not Sort.KIND:
                raise ConversationError(reference.text)
            if chosen is not None and not chosen.is_near:
                text, names = _put(text, names, reference, chosen.things)
        return Understood(text, tuple(names), is_changed=text != self._said)

    def _completed(self, fragment: Fragment, resolved: Understood) -> Understood:
        """The question before, changed as a fragment says."""
        last = self._exchanges[-1]
        if fragment.is_question_word:
            question = with_question_word(last.question, fragment.text)
            return _shifted(last, question)
        text, names = _cut(resolved, fragment)
        bare = _DETERMINER.sub("", text)
        if not names:
            return self._property(last, text) if fragment.is_marked else resolved
        is_name = any(name.label == bare or text[name.start : name.end] in (text, bare) for name in names)
        if is_name or fragment.replaces:
            return self._replaced(last, text, names)
        if not fragment.is_marked:
            return resolved
        if last.names and _property_place(last, self._topic(last, names)) is not None:
            return _asked(text, names, last)
        noun = text.partition("'s ")[2]
        if noun and self._is_alike(names[0].id, noun):
            return self._replaced(last, text, names)
        return _asked(text, names, None)

    def _is_alike(self, owner: str, noun: str) -> bool:
        """Whether what belongs to an entity is of its kind: a brother is a person as she is."""
        found = self._graph.property_of(owner, noun)
        if found is None:
            return False
        known = self._graph.of([owner, found.id], noun)
        return bool(known[owner].types & known[found.id].types)

    def _topic(self, last: Exchange, names: Sequence[Name]) -> tuple[int, int]:
        """The place of what the last question is about: the name that is of the kind of the new one."""
        if last.topic is not None:
            return last.topic
        if not last.names:
            raise ConversationError(self._said)
        if len(last.names) > 1 and names:
            same = [name for name in last.names if name.id == names[0].id]
            if not same:
                ids = list(dict.fromkeys([names[0].id, *(name.id for name in last.names)]))
                known = self._graph.of(ids, last.question)
                same = [n for n in last.names if known[n.id].types & known[names[0].id].types]
            if same:
                return same[-1].start, same[-1].end
        return last.names[-1].start, last.names[-1].end

    def _replaced(self, last: Exchange, text: str, names: Sequence[Name]) -> Understood:
        """The last question about something else."""
        start, end = self._topic(last, names)
        question = last.question[:start] + text + last.question[end:]
        moved = [_move(name, start) for name in names]
        grown = len(text) - (end - start)
        kept = [
            _move(name, grown if name.start >= end else 0)
            for name in last.names
            if name.end <= start or name.start >= end
        ]
        every = tuple(sorted((*moved, *kept), key=lambda name: name.start))
        return Understood(question, every, (start, start + len(text)), is_changed=True)

    def _property(self, last: Exchange, text: str) -> Understood:
        """Another property of what the last question was about."""
        start, end = self._topic(last, ())
        noun = _DETERMINER.sub("", text)
        place = _property_place(last, (start, end))
        if place is not None:
            article = "the " if last.question[place[0] : place[1]].lower().startswith("the ") else ""
            question = last.question[: place[0]] + article + noun + last.question[place[1] :]
            grown = len(article + noun) - (place[1] - place[0])
            names = tuple(_move(name, grown if name.start >= place[1] else 0) for name in last.names)
            moved = start + (grown if start >= place[1] else 0)
            return Understood(question, names, (moved, moved + end - start), is_changed=True)
        before = f"What is the {noun} of "
        topic = last.question[start:end]
        names = tuple(
            _move(name, len(before) - start) for name in last.names if start <= name.start and name.end <= end
        )
        place = (len(before), len(before) + len(topic))
        return Understood(f"{before}{topic}?", names, place, is_changed=True)


def _names(mentions: Sequence[Mention]) -> tuple[Name, ...]:
    """The first meaning of each name."""
    first: dict[tuple[int, int], Mention] = {}
    for mention in mentions:
        first.setdefault((mention.start, mention.end), mention)
    return tuple(
        Name(id=m.id, label=m.label, start=start, end=end) for (start, end), m in sorted(first.items())
    )


def _without(text: str, found: Sequence[Reference]) -> str:
    for reference in reversed(found):
        text = text[: reference.start] + text[reference.end :]
    return text


def _put(
    text: str, names: Sequence[Name], reference: Reference, things: Sequence[Thing]
) -> tuple[str, list[Name]]:
    """A text with names in place of a reference."""
    before = "in " if reference.sort is Sort.PLACE else ""
    written, placed = before, list[Name]()
    for number, thing in enumerate(things):
        written += "" if number == 0 else " and " if number == len(things) - 1 else ", "
        start = reference.start + len(written)
        placed.append(Name(id=thing.id, label=thing.label, start=start, end=start + len(thing.label)))
        written += thing.label
    written += "'s" if reference.is_possessive else ""
    grown = len(written) - (reference.end - reference.start)
    moved = [_move(name, grown if name.start >= reference.end else 0) for name in names]
    text = text[: reference.start] + written + text[reference.end :]
    return text, sorted((*moved, *placed), key=lambda name: name.start)


def _move(name: Name, by: int) -> Name:
    return name.model_copy(update={"start": name.start + by, "end": name.end + by})


def _moved(understood: Understood, clause: str) -> Understood:
    """A clause without what stood before it."""
    by = len(clause) - len(understood.question)
    names = tuple(_move(name, by) for name in understood.names if name.start + by >= 0)
    return replace(understood, question=clause, names=names, is_changed=True)


def _shifted(last: Exchange, question: str) -> Understood:
    """The last question with another beginning."""
    by = len(question) - len(last.question)
    topic = None if last.topic is None else (last.topic[0] + by, last.topic[1] + by)
    return Understood(question, tuple(_move(name, by) for name in last.names), topic, is_changed=True)


def _cut(resolved: Understood, fragment: Fragment) -> tuple[str, list[Name]]:
    """A fragment in which references are resolved, and the names in it."""
    again = fragment_of(resolved.question) or fragment
    text = again.text
    names = [_move(n, -again.start) for n in resolved.names if n.start >= again.start]
    return text, [name for name in names if name.end <= len(text)]


def _property_place(last: Exchange, topic: tuple[int, int]) -> tuple[int, int] | None:
    """The place of the property that the last question asks for."""
    return property_before(last.question, topic[0]) or property_after(last.question, topic[1])


def _asked(text: str, names: Sequence[Name], last: Exchange | None) -> Understood:
    """A question for what a fragment describes, with the question word of the last one if there is one."""
    word = re.match(r"\w+\s+(?:is|are|was|were)\b", last.question) if last is not None else None
    before = f"{word.group() if word else 'What is'} "
    moved = tuple(_move(name, len(before)) for name in names)
    topic = (moved[0].start, moved[0].end) if moved else None
    return Understood(f"{before}{text}?", moved, topic, is_changed=True)
