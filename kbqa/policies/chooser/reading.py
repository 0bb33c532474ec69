"""Reads the tokens of an episode of choices: a question, the options of each turn, the choices.

    <question> who directed <topic> ? </question>
    <options> <1> directed by <2> <inverse> starred actors </options> <1>
    <options> <0> answer <1> … </options> <0>

An option of a form begins with tags for its operation and for the topic that it is about:

    <options> <0> answer <1><keep><topic2> starring <2><max> runtime <3><count> number </options> <2>

The relations of the nodes that an option leads to may follow its own words:

    <options> <1> directed by <then> born in <then><inverse> directed by <2> runtime </options> <1>

A relation that the graph lacks is read like one that it has:

    <options> <1> directed by <2><missing> written by <3><none> none of these </options> <2>

The dialects are `kbqa.protocols.chooser` and `kbqa.protocols.form_chooser`; there each number and each tag
is a token of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

from kbqa.errors import PolicyIntegrityError

ANSWER = 0
"""The number of the option that answers with the entities at hand."""


KINDS: tuple[tuple[str, ...], ...] = (
    (),
    ("<inverse>",),
    ("<keep>",),
    ("<keep>", "<inverse>"),
    *((f"<{operation}>",) for operation in ("start", "type", "max", "min", "gt", "ge", "lt", "le", "at")),
    ("<count>",),
    ("<none>",),
    ("<ask>",),
)
"""The kinds of options, by the tags before their words: a relation, one that is followed backwards, the
operations of forms, and the statement that no option leads to the answer. New ones come last."""

FORWARDS, BACKWARDS = KINDS.index(()), KINDS.index(("<inverse>",))
_NONE = KINDS.index(("<none>",))

TOPICS = ("<topic>", "<topic2>", "<topic3>", "<topic4>")
"""Tags in place of the entities that a question is about."""


class Words(NamedTuple):
    """What the model reads of an option.

    Attributes:
        kind: index into `KINDS`.
        topic: the topic that the option is about, counted from 1; 0 if it is about none in particular.
    """

    token_ids: tuple[int, ...]
    kind: int = 0
    topic: int = 0

    @property
    def plain(self) -> Words:
        """The words without their topic, as they are encoded."""
        return self._replace(topic=0) if self.topic else self


class Option(NamedTuple):
    """An option: the token that takes it, and its words; None for the answer.

    Attributes:
        behind: relations of the nodes that it leads to.
        leads_on: whether the path goes on with it; otherwise it says that the graph lacks the answer.
    """

    token: int
    words: Words | None
    behind: tuple[Words, ...] = ()
    leads_on: bool = True


class Decision(NamedTuple):
    """A point of an episode at which the policy has to choose.

    Attributes:
        question: its tokens.
        path: the options taken before, in order.
        options: the options to choose from; at least one.
    """

    question: tuple[int, ...]
    path: tuple[Words, ...]
    options: tuple[Option, ...]


class Form(NamedTuple):
    """A question, and the options that were taken for it, in order."""

    question: tuple[int, ...]
    path: tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class ChooserVocabulary:
    """The ids of the dialect's tags.

    Attributes:
        topics: token → the topic's number, counted from 1.
        operations: tokens that say what kind an option is.
        kinds: those of an option → index into `KINDS`.
        numbers: token → the option's number.
        then: token before each relation that lies behind an option; None if the policy is shown none.
        missing: token before a relation that the graph lacks; None if the policy is shown none.
        first: the lowest id of all tags.
    """

    question: tuple[int, int]
    options: tuple[int, int]
    error: int
    topics: Mapping[int, int]
    operations: frozenset[int]
    kinds: Mapping[tuple[int, ...], int]
    numbers: Mapping[int, int]
    then: int | None
    missing: int | None
    first: int

    @classmethod
    def of(cls, tags: Mapping[str, int]) -> ChooserVocabulary:
        """The ids of tags by their text.

        Raises:
            PolicyIntegrityError: a tag of the dialect is missing.
        """
        try:
            return cls(
                question=(tags["<question>"], tags["</question>"]),
                options=(tags["<options>"], tags["</options>"]),
                error=tags["<error>"],
                topics={tags[tag]: number for number, tag in enumerate(TOPICS, start=1) if tag in tags},
                operations=frozenset(tags[tag] for tag in {*chain(*KINDS)} if tag in tags),
                kinds={
                    tuple(tags[tag] for tag in kind): number
                    for number, kind in enumerate(KINDS)
                    if all(tag in tags for tag in kind)
                },
                numbers={id_: int(tag[1:-1]) for tag, id_ in tags.items() if tag[1:-1].isdigit()},
                then=tags.get("<then>"),
                missing=tags.get("<missing>"),
                first=min(tags.values()),
            )
        except KeyError as error:
            raise PolicyIntegrityError(f"the policy's tokenizer lacks the token {error}") from None


def decisions(token_ids: Sequence[int], vocabulary: ChooserVocabulary) -> Iterator[tuple[int, Decision]]:
    """The decisions of an episode, each with the position of the token before its choice."""
    question: tuple[int, ...] = ()
    path: list[Words] = []
    offered: dict[int, Words | None] = {}
    opened = 0
    is_listing = False
    for position in _tags(token_ids, vocabulary.first):
        token = token_ids[position]
        if token in (vocabulary.question[0], vocabulary.options[0]):
            opened, is_listing = position + 1, token == vocabulary.options[0]
        elif token == vocabulary.question[1]:
            question = tuple(token_ids[opened:position])
        elif token == vocabulary.options[1]:
            options = tuple(_options(token_ids[opened:position], vocabulary))
            offered = {option.token: option.words for option in options if option.leads_on}
            is_listing = False
            if options:
                yield position, Decision(question, tuple(path), options)
        elif token == vocabulary.error and offered:
            # The relation could not be followed, so the policy is where it was before.
            path, offered = path[:-1], {}
        elif not is_listing and (words := offered.get(token)) is not None:
            path.append(words)


def form_of(token_ids: Sequence[int], vocabulary: ChooserVocabulary) -> Form:
    """The form at hand when an episode made its last choice; an empty one if it made none."""
    last = Form((), ())
    for _, decision in decisions(token_ids, vocabulary):
        last = Form(decision.question, decision.path)
    return last


def _tags(token_ids: Sequence[int], first: int) -> Iterator[int]:
    """The positions of tags, whose ids are higher than those of all other tokens."""
    return (position for position, token in enumerate(token_ids) if token >= first)


def _options(token_ids: Sequence[int], vocabulary: ChooserVocabulary) -> Iterator[Option]:
    starts = [at for at in _tags(token_ids, vocabulary.first) if token_ids[at] in vocabulary.numbers]
    for start, end in pairwise((*starts, len(token_ids))):
        token = token_ids[start]
        if vocabulary.numbers[token] == ANSWER:
            yield Option(token, None)
        else:
            said, *further = _divided(token_ids[start + 1 : end], vocabulary.then)
            is_missing = list(said[:1]) == [vocabulary.missing]
            words = _words(said[1:] if is_missing else said, vocabulary)
            behind = tuple(_words(relation, vocabulary) for relation in further)
            yield Option(token, words, behind, leads_on=not is_missing and words.kind != _NONE)


def _divided(token_ids: Sequence[int], at: int | None) -> Iterator[Sequence[int]]:
    """The parts of a text between the places of a token."""
    places = [place for place, token in enumerate(token_ids) if token == at]
    for start, end in pairwise((-1, *places, len(token_ids))):
        yield token_ids[start + 1 : end]


def _words(token_ids: Sequence[int], vocabulary: ChooserVocabulary) -> Words:
    """The words of an option after its tags; tags in an unknown order say nothing."""
    kind: list[int] = []
    topic = at = 0
    for at, token in enumerate(token_ids):  # noqa: B007 - its last value counts
        if token in vocabulary.operations:
            kind.append(token)
        elif token in vocabulary.topics:
            topic = vocabulary.topics[token]
        else:
            break
    else:
        at = len(token_ids)
    return Words(tuple(token_ids[at:]), vocabulary.kinds.get(tuple(kind), 0), topic)
