"""KG-R1's dialect: `<think>`, `<kg-query>`, `<information>`, `<answer>`.

A turn is one reasoning part and one query or answer (section 3.2); four one-hop
actions; observations and errors as in appendix D.5 and figures 10 to 15. The
prompt is in our own words around the paper's tags and placeholders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_HEAD_RELATIONS,
    GET_TAIL_ENTITIES,
    GET_TAIL_RELATIONS,
    ONE_HOP_ACTIONS,
    Action,
    ActionResult,
    DatedItem,
    Failure,
    Item,
    Success,
)
from kbqa.protocols.base import Dialogue, Opening, PredictedAnswer, Reply
from kbqa.protocols.kg_r1_instructions import CHAT_RULES, INSTRUCTION, REFERENCE_CHAT_RULES, REFERENCE_RULE
from kbqa.protocols.one_hop_results import RelationFormat, describe, finds_entities, listed
from kbqa.protocols.references import REFERENCES, References, referring
from kbqa.protocols.registry import PROTOCOLS
from kbqa.protocols.seen import SeenEntities
from kbqa.protocols.turn_text import read_json, read_turn
from kbqa.trajectory import Question, Segment

_ARGUMENTS = {
    GET_TAIL_RELATIONS: ("entity",),
    GET_HEAD_RELATIONS: ("entity",),
    GET_TAIL_ENTITIES: ("entity", "relation"),
    GET_HEAD_ENTITIES: ("entity", "relation"),
}

_ECHOED = 100  # maximum characters of an unknown reference that an error repeats

_TAGS = (
    "<think>",
    "</think>",
    "<kg-query>",
    "</kg-query>",
    "<information>",
    "</information>",
    "<answer>",
    "</answer>",
    "<error>",
    "</error>",
)

_COMMAND = re.compile(r"<(kg-query|answer)>(.*?)</\1>", re.DOTALL)
_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_BETWEEN_QUOTED = re.compile(r"""["']\s*,\s*["']""")


@PROTOCOLS.register("kg_r1")
@dataclass(frozen=True, slots=True)
class KgR1:
    """The dialect.

    Attributes:
        prompt: `full` explains tags and queries to a pretrained model; `brief` holds the question and
            its entities alone, for a policy that learned the dialect in its cold start.
        relations: a `flat` list, or `hierarchical`: relations named domain.type.property as
            an indented tree (E.3.2, Table 10), half as long and on CWQ 16.9 % worse.
        entities: the policy reads and writes their `names`, as in the paper, or `references`
            (`kbqa.protocols.references`), which are replaced by ids before the graph is asked. With the
            brief prompt, results show references only; otherwise they show names as well.
        strict: whether a well-formed turn has a thought with words, and no tag within its thought or its
            command, such as a second `<think>` or an `<information>` that the policy made up. Otherwise an
            empty `<think></think>` will do, which the demonstrations of small policies have.
    """

    prompt: Literal["full", "brief"] = "full"
    relations: RelationFormat = "flat"
    entities: Literal["names", "references"] = "names"
    strict: bool = False

    name: ClassVar[str] = "kg_r1"
    stop: ClassVar[tuple[str, ...]] = ("</kg-query>", "</answer>")

    @property
    def tags(self) -> tuple[str, ...]:
        return _TAGS if self.entities == "names" else _TAGS + REFERENCES

    def begin(self, question: Question, max_turns: int) -> KgR1Dialogue:
        kind = KgR1Dialogue if self.entities == "names" else ReferringDialogue
        return kind(question, max_turns, self)


class KgR1Dialogue(Dialogue):
    """An episode; it remembers the entities that it has seen."""

    def __init__(self, question: Question, max_turns: int, protocol: KgR1) -> None:
        self._question, self._protocol = question, protocol
        self._instruction = INSTRUCTION.format(max_queries=max(1, max_turns - 1))  # the last turn answers
        self._seen = SeenEntities()
        self._actions: tuple[Action, ...] = ()
        self._results: Sequence[ActionResult] = ()

    def prompt(self) -> list[Segment]:
        if self._protocol.prompt == "brief":
            # As in observations, a colon stands before listed entities and nowhere else, so that a small
            # policy can always copy an entity from what follows the last colon.
            return [
                Segment("Question "),
                Segment(self._question.text, trusted=False),
                Segment("\nInitial entities: "),
                Segment(", ".join(self._question.topic_entities), trusted=False),
                Segment("\nAssistant"),
            ]
        return [
            Segment(self._instruction),
            Segment("Question: "),
            Segment(self._question.text, trusted=False),
            Segment("\nInitial entities: "),
            Segment(self._topics, trusted=False),
            Segment("\nAssistant:"),
        ]

    def opening(self, *, native_tools: bool) -> Opening:
        user = f"Question: {self._question.text}\nInitial entities: {self._topics}"
        return Opening(self._instruction + CHAT_RULES, user)

    @property
    def _topics(self) -> str:
        return ", ".join(f'"{topic}"' for topic in self._question.topic_entities)

    def reply(self, text: str) -> Reply:
        self._actions = ()
        turn = read_turn(text, _COMMAND)
        if turn.kind is None:
            return Reply(turn.thought, problem="no <kg-query> or <answer> was found")
        tidy = turn.is_sound(_TAGS) if self._protocol.strict else turn.tidy
        if turn.kind == "answer":
            return Reply(turn.thought, well_formed=tidy, answers=self._answers(turn.body))
        action, proper = _parse_query(turn.body)
        self._actions = (action,)
        return Reply(turn.thought, well_formed=tidy and proper, actions=self._actions)

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        self._results = results
        for result in results:
            if isinstance(result, Success):
                self._seen.add(result.items)
        return ()

    def observation(self, turns_left: int) -> list[Segment]:
        described = (
            describe(action, result, self._protocol.relations)
            for action, result in zip(self._actions, self._results, strict=True)
        )
        failed = any(isinstance(result, Failure) for result in self._results)
        return _information("\n".join(described), failed=failed)

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        advice = (
            f"{problem}; reason in <think></think>, then write one <kg-query></kg-query> or <answer></answer>"
        )
        return _information(advice, failed=True)

    def _answers(self, text: str) -> tuple[PredictedAnswer, ...]:
        """Answers as labels. A label that was seen is not split, even if it contains a separator."""
        names = [name for line in text.strip().splitlines() for name in _split_line(line, self._seen)]
        return tuple(PredictedAnswer(name, self._seen.ids(name)) for name in dict.fromkeys(names))


class ReferringDialogue(KgR1Dialogue):
    """An episode by reference; its actions carry ids, so that they serve as evidence like any others."""

    def __init__(self, question: Question, max_turns: int, protocol: KgR1) -> None:
        super().__init__(question, max_turns, protocol)
        self._instruction += REFERENCE_RULE
        self._references = References(question.topic_entities)
        self._written = ""  # the last query's entity, as the policy wrote it
        self._names_shown = protocol.prompt == "full"

    def prompt(self) -> list[Segment]:
        if not self._names_shown:
            return [Segment("Question "), *self._asked, Segment("\nAssistant")]
        return [
            Segment(f"{self._instruction}Question: "),
            *self._asked,
            Segment("\nInitial entities: "),
            Segment(self._topics, trusted=False),
            Segment("\nAssistant:"),
        ]

    def opening(self, *, native_tools: bool) -> Opening:
        self._names_shown = True  # a chat model can make use of names
        asked = "".join(segment.text for segment in self._asked)
        user = f"Question: {asked}\nInitial entities: {self._topics}"
        return Opening(self._instruction + REFERENCE_CHAT_RULES, user)

    @property
    def _asked(self) -> list[Segment]:
        return referring(self._question.text, self._question.topic_entities)

    @property
    def _topics(self) -> str:
        topics = self._question.topic_entities
        return ", ".join(self._beside_its_name(Item(topic, topic)).label for topic in topics)

    def reply(self, text: str) -> Reply:
        reply = super().reply(text)
        if not any("entity" in action.arguments for action in self._actions):
            return reply
        (action,) = self._actions
        self._written = action.arguments["entity"]
        entity = self._references.entity(self._written)
        # No graph has an entity of this name, even if it has one named e9 or named as the policy wrote; so
        # the graph says that it is unknown.
        id_ = f"unknown reference {self._written[:_ECHOED]}" if entity is None else entity.id
        self._actions = (replace(action, arguments={**action.arguments, "entity": id_}),)
        return replace(reply, actions=self._actions)

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        for action, result in zip(self._actions, results, strict=True):
            if isinstance(result, Success) and finds_entities(action):
                self._references.add(result.items)
        return super().take(results)

    def observation(self, turns_left: int) -> list[Segment]:
        (action,), (result,) = self._actions, self._results
        if isinstance(result, Failure):
            return self._fault(action, result.message)
        if not self._names_shown:
            shown = self._found(result) if finds_entities(action) else [Segment(listed(result.items), False)]
            return [Segment("<information>"), *shown, Segment("</information>")]
        if finds_entities(action):
            result = replace(result, items=tuple(map(self._beside_its_name, result.items)))
        asked = replace(action, arguments={**action.arguments, "entity": self._written})
        return _information(describe(asked, result, self._protocol.relations), failed=False)

    def _answers(self, text: str) -> tuple[PredictedAnswer, ...]:
        """Entities by their references; anything else, such as a date or a number, stands for itself."""
        pieces = [piece.strip() for piece in re.split(r"[,\n]", text)]
        found: dict[str, PredictedAnswer] = {}
        for piece in filter(None, pieces):
            entity = self._references.entity(piece)
            found[piece] = (
                PredictedAnswer(piece) if entity is None else PredictedAnswer(entity.label, (entity.id,))
            )
        return tuple(dict.fromkeys(found.values()))

    def _fault(self, action: Action, message: str) -> list[Segment]:
        """The graph's error about an id, with what the policy wrote in place of the id."""
        opening, text, closing = _information(message, failed=True)
        before, quoted, after = message.partition(f'"{action.arguments.get("entity")}"')
        if not quoted:
            return [opening, text, closing]
        is_reference = self._references.entity(self._written) is not None
        named = Segment(self._written, trusted=is_reference)
        return [opening, Segment(f'{before}"', False), named, Segment(f'"{after}', False), closing]

    def _found(self, result: Success[Item]) -> list[Segment]:
        """References of the results, with the times of dated facts; the total, if some have no reference."""
        separator = "; " if any(isinstance(item, DatedItem) for item in result.items) else ", "
        listed: list[Segment] = []
        left_out = result.truncated
        for item in result.items:
            reference = self._references.of(item.id)
            left_out |= reference is None
            if reference is not None:
                listed.append(Segment(f"{separator if listed else ''}{reference}"))
                if isinstance(item, DatedItem):
                    listed.append(Segment(f" [{'; '.join(item.times)}]", trusted=False))
        return [*listed, Segment(f", ... ({result.total} in all)")] if left_out else listed

    def _beside_its_name(self, item: Item) -> Item:
        """An entity with its reference and its name, as results show it when they show names."""
        reference = self._references.of(item.id)
        return item if reference is None else replace(item, label=f"{reference} ({item.label})")


def write_query(thought: str, action: Action) -> str:
    """A turn that queries, as the parser reads it back."""
    arguments = ", ".join(f'"{action.arguments[name]}"' for name in _ARGUMENTS[action.name])
    return f"<think>{thought}</think><kg-query>{action.name}({arguments})</kg-query>"


def write_answer(thought: str, answers: Sequence[str]) -> str:
    """A turn that answers, as the parser reads it back."""
    return f"<think>{thought}</think><answer>{', '.join(answers)}</answer>"


def _parse_query(body: str) -> tuple[Action, bool]:
    """An action and whether it is one of the four with the right number of arguments.

    Text that is not a call is passed on as the name of an action, so that the policy
    reads the graph's error for an unknown action.
    """
    call = _CALL.fullmatch(body)
    if call is None:
        return Action(body.strip()[:200]), False
    name, inside = call.groups()
    names = _ARGUMENTS.get(name, ("entity", "relation"))
    values = _parse_arguments(inside.strip(), len(names))
    # A surplus argument is passed on under the next name, so that the graph reports it.
    keys = [*names, "relation", "surplus"][: len(values)] if name in _ARGUMENTS else ["entity", "relation"]
    arguments = dict(zip(keys, values, strict=False))
    return Action(name, arguments), name in ONE_HOP_ACTIONS and len(values) == len(names)


def _parse_arguments(inside: str, wanted: int) -> list[str]:
    """Arguments of a call, quoted or not; names may hold quotes, commas and brackets."""
    if not inside:
        return []
    try:
        values = read_json(f"[{inside}]")
        if all(isinstance(value, str) for value in values):
            return list(values)
    except ValueError:
        pass
    if len(inside) >= 2 and inside[0] in "\"'" and inside[-1] == inside[0]:
        return _BETWEEN_QUOTED.split(inside[1:-1])
    pieces = [piece.strip().strip("\"'") for piece in inside.split(",")]
    if wanted == 2 and len(pieces) > 2:  # an unquoted name with commas; relations have none
        return [", ".join(pieces[:-1]), pieces[-1]]
    return pieces


def _information(text: str, *, failed: bool) -> list[Segment]:
    opening, closing = ("<error>", "</error>") if failed else ("", "")
    return [
        Segment(f"<information>{opening}"),
        Segment(text, trusted=False),
        Segment(f"{closing}</information>"),
    ]


def _split_line(line: str, seen: SeenEntities) -> list[str]:
    """Split at commas, except where a longer run of pieces is a label that was seen."""
    pieces = line.split(",")
    answers, start = [], 0
    while start < len(pieces):
        for end in range(len(pieces), start, -1):
            text = ",".join(pieces[start:end])
            if text in seen or end == start + 1:
                answers.append(seen.label(text).strip())
                start = end
                break
    return [answer for answer in answers if answer]
