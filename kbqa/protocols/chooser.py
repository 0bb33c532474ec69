"""A dialect of choices: each turn takes one of the options that the graph has.

As in Pangu (Gu et al. 2023, "Don't generate, discriminate"), the policy writes neither names nor queries:
it reads the relations of the entities at hand, in both directions, and writes the number of the relation
to follow, or 0 to answer with the entities at hand. One turn:

    <options><0> answer<1> directed by<2><inverse> starred actors</options>   what the policy reads
    <2>                                                                        what it writes

A relation is followed from the whole set of entities (`follow_path`); KG-R1's four one-hop actions
follow it from one entity. Every number is a token of its own for a chooser (`kbqa.policies.chooser`);
a language model can write it, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kbqa.kg.actions import FOLLOW_PATH, Action, ActionResult, Failure, Item
from kbqa.kg.linking.linker import EntityLinker
from kbqa.kg.ranking.encoders import words
from kbqa.protocols.base import Dialogue, Opening, PredictedAnswer, Reply
from kbqa.protocols.registry import PROTOCOLS
from kbqa.trajectory import Question, Segment

MOST_OPTIONS = 256
"""How many numbers of options there are; a policy's vocabulary holds one token for each."""

ANSWER = 0
"""Number of the option to answer with the entities at hand."""

_CHOICE = re.compile(r"<(\d{1,4})>")
_LAST_PART = re.compile(r"[^/#.:]+(?=[/#.:]*$)")
_SHOWN = 5  # entities at hand that a language model is shown
_MESSAGE_CHARS = 200

# Short, without names and with examples: of several wordings, a small model follows this one most often.
_INSTRUCTION = """\
Choose the relation of a knowledge graph that leads towards the answer, in at most {hops} steps, or <0> to \
answer with what you have found. <inverse> marks a relation that is followed backwards. Reply with its number.

Question: where was Ada born ?
<1> spouse
<2> place of birth
<3><inverse> spouse
Reply: <2>

Question: who directed Alien ?
<1> director
<2> starring
Reply: <1>

"""


@PROTOCOLS.register("chooser")
@dataclass(frozen=True, slots=True)
class ChoosingProtocol:
    """The dialect.

    Attributes:
        prompt: `brief` holds the question alone, with a tag in place of the entity that it is about, so
            that a sentence encoder reads what is asked and not a name; `full` explains the dialect
            to a language model, and shows it some of the entities at hand.
        max_options: maximum relations listed; if there are more, the graph chooses those that fit the
            question best.
        revisit: whether a path may lead back to the entity at which it began.
    """

    prompt: Literal["brief", "full"] = "brief"
    max_options: Annotated[int, Field(ge=1, lt=MOST_OPTIONS)] = 100
    revisit: bool = False

    name: ClassVar[str] = "chooser"
    tags: ClassVar[tuple[str, ...]] = (
        "<question>",
        "</question>",
        "<options>",
        "</options>",
        "<error>",
        "</error>",
        "<inverse>",
        "<topic>",
        *(f"<{number}>" for number in range(MOST_OPTIONS)),
    )
    stop: ClassVar[tuple[str, ...]] = (">",)

    def begin(self, question: Question, max_turns: int) -> ChooserDialogue:
        return ChooserDialogue(question, max_turns, self)


@dataclass(frozen=True, slots=True)
class _Option:
    """A relation that can be followed from the entities at hand.

    Attributes:
        topic: the entity at which the path begins.
        step: as `follow_path` takes it.
        words: what the policy reads of it.
    """

    topic: str
    step: str
    inverse: bool
    words: str


def write_choice(number: int) -> str:
    """A turn that takes an option."""
    return f"<{number}>"


class ChooserDialogue(Dialogue):
    """A walk: where it began, its path, the entities at hand and the options there."""

    def __init__(self, question: Question, max_turns: int, protocol: ChoosingProtocol) -> None:
        self._question, self._protocol, self._hops = question, protocol, max_turns - 1
        self._topics: dict[str, str] = {}  # topic entity → its label
        self._topic, self._path = "", list[str]()
        self._at_hand: tuple[Item, ...] = ()
        self._options: dict[int, _Option] = {}
        self._taken: _Option | None = None
        self._problem = ""

    def first_look(self) -> tuple[Action, ...]:
        topics = self._question.topic_entities
        return tuple(self._follow(topic, [], share=len(topics)) for topic in topics)

    def prompt(self) -> list[Segment]:
        text, is_full = self._question.text, self._protocol.prompt == "full"
        if is_full:
            asked = [Segment("Question: "), Segment(text, trusted=False)]
            return [Segment(_INSTRUCTION.format(hops=self._hops)), *asked, *self._look_around()]
        segments = [Segment("<question>")]
        # The topic's name says nothing about what is asked. If there are several topics, options name them.
        named = None if len(self._topics) != 1 else place(text, *self._topics.items())
        if named is None:
            segments.append(Segment(text, trusted=False))
        else:
            before, after = Segment(text[: named[0]], trusted=False), Segment(text[named[1] :], trusted=False)
            segments += [before, Segment("<topic>"), after]
        return [*segments, Segment("</question>"), *self._look_around()]

    def opening(self, *, native_tools: bool) -> Opening:
        instruction = _INSTRUCTION.format(hops=self._hops)
        user = "".join(segment.text for segment in self.prompt())
        return Opening(instruction, user.removeprefix(instruction))

    def reply(self, text: str) -> Reply:
        found = _CHOICE.search(text)
        number = None if found is None else int(found[1])
        well_formed = found is not None and text.strip() == found[0]
        if number == ANSWER and (self._path or not self._options):
            found_here = tuple(answers_of(self._at_hand)) if self._path else ()
            return Reply(well_formed=well_formed, answers=found_here)
        option = None if number is None else self._options.get(number)
        if option is None:
            says = "no number such as <1> was found" if number is None else f"there is no option <{number}>"
            return Reply(problem=f"{says}; write the number of one option that is listed")
        self._taken = option
        path = self._path if option.topic == self._topic else []
        return Reply(well_formed=well_formed, actions=(self._follow(option.topic, [*path, option.step]),))

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        if self._taken is None:
            self._take_topics(results)
            return ()
        (result,) = results
        option, self._taken = self._taken, None
        self._problem = ""
        if isinstance(result, Failure):
            self._problem = result.message[:_MESSAGE_CHARS]
            return ()
        self._path = [*(self._path if option.topic == self._topic else ()), option.step]
        self._topic, self._at_hand = option.topic, result.items
        self._offer({option.topic: _relations(result)})
        return ()

    def observation(self, turns_left: int) -> list[Segment]:
        if turns_left <= 1 and self._path:
            self._options = {}
        return self._look_around()

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        self._problem = problem
        return self.observation(turns_left)

    def _follow(self, topic: str, path: list[str], share: int = 1) -> Action:
        arguments: dict[str, Any] = {
            "entity": topic,
            "path": path,
            "question": self._question.text,
            "relations": max(1, self._protocol.max_options // share),
        }
        return Action(FOLLOW_PATH, {**arguments, "return": True} if self._protocol.revisit else arguments)

    def _take_topics(self, results: Sequence[ActionResult]) -> None:
        """The options of the first turn: those of each topic entity."""
        listed: dict[str, list[Mapping[str, Any]]] = {}
        for topic, result in zip(self._question.topic_entities, results, strict=True):
            if isinstance(result, Failure):
                self._problem = result.message[:_MESSAGE_CHARS]
                continue
            self._topics[topic] = result.items[0].label if result.items else topic
            self._at_hand += result.items
            listed[topic] = _relations(result)
        self._offer(listed)

    def _offer(self, listed: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Number the relations that can be followed; with several topics, add the topic's name to each."""
        options: list[_Option] = []
        for topic, relations in listed.items():
            name = f"{self._topics[topic]} : " if len(listed) > 1 else ""
            for relation, text in zip(relations, in_words(relations), strict=True):
                inverse = relation["direction"] == "in"
                step = f"^{relation['id']}" if inverse else relation["id"]
                options.append(_Option(topic, step, inverse, name + text))
        self._options = dict(enumerate(options[: MOST_OPTIONS - 1], start=1))

    def _look_around(self) -> list[Segment]:
        """The current options, and why the last choice could not be followed."""
        if self._protocol.prompt == "full":
            return self._tell()
        problem = [Segment("<error>"), Segment(self._problem, trusted=False), Segment("</error>")]
        listed = [Segment("<options>"), *self._list(""), Segment("</options>")]
        return [*problem, *listed] if self._problem else listed

    def _tell(self) -> list[Segment]:
        """The same for a language model, with some of the entities at hand."""
        segments = [Segment("\n")]
        if self._problem:
            segments += [Segment("Error: "), Segment(self._problem, trusted=False), Segment("\n")]
        if self._path:
            names = ", ".join(item.label for item in self._at_hand[:_SHOWN])
            rest = f", … ({len(self._at_hand)} in all)" if len(self._at_hand) > _SHOWN else ""
            segments += [Segment("Found: "), Segment(names + rest, trusted=False), Segment("\n")]
        return [*segments, *self._list("\n"), Segment("Reply:")]

    def _list(self, end: str) -> Iterator[Segment]:
        """The options, each with its number."""
        if self._path or not self._options:
            yield Segment(f"<{ANSWER}> answer{end}")
        for number, option in self._options.items():
            yield Segment(f"<{number}>{'<inverse>' if option.inverse else ''}")
            yield Segment(f" {option.words}", trusted=False)
            if end:
                yield Segment(end)


def _relations(result: ActionResult) -> list[Mapping[str, Any]]:
    """The relations that can be followed next; see `kbqa.kg.retrieval.follow_path`."""
    relations: list[Mapping[str, Any]] = list(result.details["relations"])
    return relations


def answers_of(items: Iterable[Item]) -> Iterable[PredictedAnswer]:
    """The entities as answers; entities with the same label are one answer."""
    named: dict[str, list[str]] = {}
    for item in items:
        named.setdefault(item.label, []).append(item.id)
    return (PredictedAnswer(label, tuple(ids)) for label, ids in named.items())


def in_words(relations: Sequence[Mapping[str, Any]]) -> list[str]:
    """Relations as words: the label or the last part of the id, or the whole id if that is ambiguous."""
    named = [(short(relation["id"], relation["label"]), relation["direction"]) for relation in relations]
    counts = Counter(named)
    return [
        name[0] if name[0] and counts[name] == 1 else words(relation["id"]) or relation["id"]
        for name, relation in zip(named, relations, strict=True)
    ]


@lru_cache(1 << 14)
def short(id_: str, label: str) -> str:
    """The words of a label, or if there is none, those of the last part of an id."""
    if label != id_:
        return words(label)
    last = _LAST_PART.search(label)
    return words(last[0]) if last else ""


def place(text: str, topic: tuple[str, str]) -> tuple[int, int] | None:
    """Where a question names its topic, by label or id, or nearly; None if it does not."""
    for name in sorted(set(topic), key=len, reverse=True):
        for flags in (re.NOFLAG, re.IGNORECASE):
            found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, flags)
            if found is not None:
                return found.span()
    # As it was linked: "Ms. Brant" for Karen Brant, "Switches" for Switch.
    id_, label = topic
    mentions = EntityLinker([(label, Item(id_, label))]).link(text)
    return (mentions[0].start, mentions[0].end) if mentions else None
