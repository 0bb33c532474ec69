"""A dialect of choices among logical forms: each turn expands a form by one operation that the graph has.

The turns are those of `kbqa.protocols.chooser`, with more than relations to follow: the options come from
`expand`, and so every kind of question that KBQA-R1's actions can express can be answered. The policy
reads for each option the operation as tags, then words:

    <question> the longest film by <topic> that stars <topic2> </question>
    <options><1> directed by<2><inverse><topic2> starring …</options>           <1>
    <options><0> answer<1><keep><topic2> starring<2><max> greatest runtime …</options>   <1>
    <options><0> answer<1><max> greatest runtime …</options>                    <1>
    <options><0> answer …</options>                                              <0>

Its state is the form. Nothing is written but numbers, so no form can be wrong: each was listed by the graph.

A policy that `may_decline` is also offered to say that no option leads to the answer. It then reads the
same options again, without this one, and chooses what comes nearest: a candidate, which is not an answer.

    <options><1> written by<2> release year<3><none> none of these</options>    <3>
    <options><1> written by<2> release year</options>                           <1>

If the protocol says `list_missing`, a policy that may decline reads what the graph lacks, too: relations that
others like these nodes have. To choose one is to decline, and it says why.

    <options><1> directed by<2> release year<3><missing> written by<4><none> none of these</options>   <3>

If it says `pass_nameless`, two relations through nodes without names are one option, too:

    <question> the mayor of <topic> in 1987 </question>
    <options><1> government<2> government mayor<3> population …</options>       <2>

If the protocol says `may_ask`, the policy can find out whether a topic is one of the members at hand:

    <question> did <topic> direct <topic2> ? </question>
    <options><0> answer<1><ask><topic2> whether<2> runtime …</options>           <1>

If the protocol says `look_ahead`, a relation is followed by those of the nodes that it leads to, so that the
policy sees which first step makes the second one possible:

    <options><1> directed by<then> born in<then><inverse> directed by<2> runtime …</options>
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from kbqa.kg.actions import EXPAND, Action, ActionResult, Failure, Item
from kbqa.kg.retrieval.expand import MAX_TOPICS
from kbqa.protocols.base import Dialogue, Opening, PredictedAnswer, Reply
from kbqa.protocols.chooser import ANSWER, MOST_OPTIONS, ChoosingProtocol, answers_of, in_words, place, short
from kbqa.protocols.registry import PROTOCOLS
from kbqa.trajectory import DECLINED, Question, Segment

TOPICS = ("<topic>", "<topic2>", "<topic3>", "<topic4>")
THEN = "<then>"
"""Before each relation of the nodes that an option leads to."""
MISSING = "<missing>"
"""Before a relation that the graph lacks."""

_OPERATIONS = ("keep", "start", "type", "max", "min", "gt", "ge", "lt", "le", "at", "count")
_WHETHER = "whether"
_CHOICE = re.compile(r"<(\d{1,4})>")
_MESSAGE_CHARS = 200

# What an operation is called in front of the words of its relation; of numbers, and of dates.
_EXTREMES = {"max": ("greatest", "latest"), "min": ("smallest", "earliest")}
_COMPARED = {
    "gt": ("more than", "after"),
    "ge": ("at least", "in or after"),
    "lt": ("less than", "before"),
    "le": ("at most", "in or before"),
}


@PROTOCOLS.register("form-chooser")
@dataclass(frozen=True, slots=True)
class FormChoosingProtocol:
    """The dialect.

    Attributes:
        max_options: maximum forms listed; if there are more, the graph chooses the relations that fit the
            question best.
        revisit: whether the topics stay in the sets of a form; otherwise only where nothing else is in them.
        operations: operations of `expand` that are offered; all of them by default.
        may_decline: whether the policy may say, once an episode, that no option leads to the answer.
        may_ask: whether the policy may ask whether a topic is one of the members at hand.
        list_missing: whether a policy that may decline is shown relations that others have and these nodes
            lack, where the graph is not behind an endpoint.
        look_ahead: whether each relation is listed with those of the nodes that it leads to, where the graph
            is not behind an endpoint.
        pass_nameless: whether two relations through nodes without names can be followed in one turn, where
            the graph is not behind an endpoint.
    """

    max_options: Annotated[int, Field(ge=1, lt=MOST_OPTIONS)] = 200
    revisit: bool = False
    operations: tuple[str, ...] = ()
    may_decline: bool = False
    may_ask: bool = False
    list_missing: bool = False
    look_ahead: bool = False
    pass_nameless: bool = False

    name: ClassVar[str] = "form-chooser"
    begins_anywhere: ClassVar[bool] = True
    tags: ClassVar[tuple[str, ...]] = (
        *ChoosingProtocol.tags,
        *TOPICS[1:],
        *(f"<{operation}>" for operation in _OPERATIONS),
        "<none>",
        THEN,
        "<ask>",
        MISSING,
    )
    stop: ClassVar[tuple[str, ...]] = (">",)

    def begin(self, question: Question, max_turns: int) -> FormDialogue:
        return FormDialogue(question, max_turns, self)


@dataclass(frozen=True, slots=True)
class _Option:
    """A form to choose, and how the policy reads what is new in it.

    Attributes:
        behind: tags and words of the relations of the nodes that it leads to.
    """

    form: str
    tags: str
    words: str
    behind: tuple[tuple[str, str], ...] = ()

    @property
    def absence(self) -> str:
        """What a user reads if the graph lacks it."""
        leads_back = "<inverse>" in self.tags
        return f'nothing leads here by "{self.words}"' if leads_back else f'no "{self.words}" here'


class FormDialogue(Dialogue):
    """An episode: the form so far, its members, and the forms that come next."""

    def __init__(self, question: Question, max_turns: int, protocol: FormChoosingProtocol) -> None:
        self._question, self._protocol = question, protocol
        self._topics: dict[str, int] = {}  # topic entity → its number, counted from 1
        self._labels: dict[str, str] = {}  # topic entity → its label
        self._form: str | None = None
        self._at_hand: tuple[Item, ...] = ()
        self._is_answer = True  # whether the members at hand can be what is asked for
        self._options: dict[int, _Option] = {}
        self._missing: dict[int, _Option] = {}
        self._taken: _Option | None = None
        self._may_decline = protocol.may_decline
        self._problem = ""

    def first_look(self) -> tuple[Action, ...]:
        return (self._expand(None),)

    def prompt(self) -> list[Segment]:
        return [Segment("<question>"), *self._asked(), Segment("</question>"), *self._look_around()]

    def opening(self, *, native_tools: bool) -> Opening:
        return Opening("", "".join(segment.text for segment in self.prompt()))

    def reply(self, text: str) -> Reply:
        found = _CHOICE.search(text)
        number = None if found is None else int(found[1])
        well_formed = found is not None and text.strip() == found[0]
        if number == ANSWER and self._may_answer:
            return Reply(well_formed=well_formed, answers=tuple(self._answers()))
        lacks = None if number is None else self._missing.get(number)
        if lacks is not None or (number is not None and number == self._declining):
            self._may_decline = False
            thought = DECLINED if lacks is None else f"{DECLINED}: {lacks.absence}"
            return Reply(thought, well_formed, (self._expand(self._form),))
        option = None if number is None else self._options.get(number)
        if option is None:
            says = "no number such as <1> was found" if number is None else f"there is no option <{number}>"
            return Reply(problem=f"{says}; write the number of one option that is listed")
        self._taken = option
        return Reply(well_formed=well_formed, actions=(self._expand(option.form),))

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        (result,) = results
        option, self._taken = self._taken, None
        self._problem = ""
        if isinstance(result, Failure):
            self._problem = result.message[:_MESSAGE_CHARS]
            return ()
        self._at_hand = result.items
        if option is not None:
            self._form = option.form
        if "topics" in result.details:
            self._name_topics(result.details["topics"])
        if result.details.get("whole", False):
            self._may_decline = False
        self._is_answer = not (
            result.details.get("nameless", False) or result.details.get("elsewhere", False)
        )
        self._offer(result.details["expansions"], result.details.get("missing", ()))
        return ()

    def observation(self, turns_left: int) -> list[Segment]:
        if turns_left <= 1 and self._form is not None:
            self._options, self._missing = {}, {}
        return self._look_around()

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        self._problem = problem
        return self.observation(turns_left)

    @property
    def _declining(self) -> int | None:
        """Number of the option that says that no other leads to the answer; None if it is not offered."""
        return len(self._options) + len(self._missing) + 1 if self._may_decline and self._options else None

    @property
    def _may_answer(self) -> bool:
        """Whether there is a form, and members that can be what is asked for; or nothing else to choose."""
        return (self._form is not None and self._is_answer) or not self._options

    def _expand(self, form: str | None) -> Action:
        protocol = self._protocol
        arguments: dict[str, Any] = {
            "question": self._question.text,
            "topics": list(self._question.topic_entities[:MAX_TOPICS]),
            "expansions": protocol.max_options,
        }
        if form is not None:
            arguments["form"] = form
        if protocol.operations:
            arguments["operations"] = list(protocol.operations)
        flags = {
            "return": protocol.revisit,
            "ask": protocol.may_ask,
            "missing": protocol.list_missing and self._may_decline,
            "ahead": protocol.look_ahead,
            "through": protocol.pass_nameless,
        }
        return Action(EXPAND, {**arguments, **{flag: True for flag, is_set in flags.items() if is_set}})

    def _answers(self) -> Iterator[PredictedAnswer]:
        if self._form is not None:
            yield from answers_of(self._at_hand)

    def _name_topics(self, topics: Mapping[str, Mapping[str, Any]]) -> None:
        """Number the topics by label, so that namesakes have one number."""
        numbers: dict[str, int] = {}
        for topic, said in topics.items():
            self._labels[topic] = said["label"]
            self._topics[topic] = numbers.setdefault(said["label"], len(numbers) + 1)

    def _asked(self) -> Iterator[Segment]:
        """The question, with a tag in place of each topic that it names."""
        text, at = self._question.text, 0
        for start, end, topic in self._places(text):
            yield Segment(text[at:start], trusted=False)
            yield Segment(TOPICS[self._topics[topic] - 1])
            at = end
        yield Segment(text[at:], trusted=False)

    def _places(self, text: str) -> list[tuple[int, int, str]]:
        """Where the question names topics, in order; the longest name first where names overlap."""
        found: list[tuple[int, int, str]] = []
        for topic, label in sorted(self._labels.items(), key=lambda named: -len(named[1])):
            span = place(text, (topic, label)) if self._topics[topic] <= len(TOPICS) else None
            if span is not None and all(span[1] <= start or span[0] >= end for start, end, _ in found):
                found.append((*span, topic))
        return sorted(found)

    def _offer(self, expansions: Sequence[Mapping[str, Any]], missing: Sequence[Mapping[str, Any]]) -> None:
        # The only value that a question mentions need not be said, so that fewer texts have to be encoded.
        values = {one["operand"]["label"] for one in expansions if one["operation"] in (*_COMPARED, "at")}
        most = MOST_OPTIONS - 2 - len(missing)
        options = [self._option(one, len(values) > 1) for one in expansions[:most]]
        self._options = dict(enumerate(options, start=1))
        lacks = map(self._option, missing)
        self._missing = {
            number: replace(option, tags=MISSING + option.tags)
            for number, option in enumerate(lacks, start=1 + len(options))
        }

    def _option(self, expansion: Mapping[str, Any], says_value: bool = False) -> _Option:
        operation, path, operand = expansion["operation"], expansion["path"], expansion.get("operand")
        relations = " ".join(in_words([{**hop, "direction": ""} for hop in path]))
        tags = "" if operation == "join" else f"<{operation}>"
        if operation == "ask":
            return _Option(expansion["form"], tags + self._topic_tag(operand), _WHETHER)
        if operation in ("join", "keep"):
            tags += ("<inverse>" if path[0]["inverse"] else "") + self._topic_tag(operand)
            of = expansion.get("of", "")
            behind = tuple(
                ("<inverse>" if hop["inverse"] else "", in_words([{**hop, "direction": ""}])[0])
                for hop in expansion.get("behind", ())
            )
            return _Option(expansion["form"], tags, f"{short(of, of)} {relations}".strip(), behind)
        is_date = bool(expansion.get("date"))
        value = operand["label"].lower() if operand is not None and says_value else ""
        if operation in _EXTREMES:
            said = f"{_EXTREMES[operation][is_date]} {relations}"
        elif operation in _COMPARED:
            said = f"{relations} {_COMPARED[operation][is_date]} {value}"
        elif operation == "at":
            said = f"at the time {value}"
        else:
            said = "number" if operand is None else short(operand["id"], operand["label"])
        return _Option(expansion["form"], tags, said.rstrip())

    def _topic_tag(self, operand: Mapping[str, Any] | None) -> str:
        """The tag of the topic that an option is about, where there are several; else ""."""
        number = self._topics.get(operand["id"], 0) if operand is not None else 0
        return TOPICS[number - 1] if len(set(self._topics.values())) > 1 and 0 < number <= len(TOPICS) else ""

    def _look_around(self) -> list[Segment]:
        """The current options, and why the last choice failed."""
        problem = [Segment("<error>"), Segment(self._problem, trusted=False), Segment("</error>")]
        listed = [Segment("<options>"), *self._list(), Segment("</options>")]
        return [*problem, *listed] if self._problem else listed

    def _list(self) -> Iterator[Segment]:
        """The options, each with its number."""
        if self._may_answer:
            yield Segment(f"<{ANSWER}> answer")
        for number, option in (self._options | self._missing).items():
            yield Segment(f"<{number}>{option.tags}")
            yield Segment(f" {option.words}", trusted=False)
            for tags, words in option.behind:
                yield Segment(f"{THEN}{tags}")
                yield Segment(f" {words}", trusted=False)
        if self._declining is not None:
            yield Segment(f"<{self._declining}><none> {DECLINED}")
