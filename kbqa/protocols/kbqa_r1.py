"""KBQA-R1's dialect: `<think>`, `<action>`, `<information>`, `<answer>`; six actions (Table II).

A turn may hold several actions, one per line; the k-th that succeeds in an episode makes
`expression<k>`, which later actions may name. Relations are written in words; the graph gates them
(RRCG) and finds their directions. The prompt is in our own words around the paper's tags (Table I).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kbqa.errors import LogicalFormError
from kbqa.kg.actions import (
    EXECUTE_LOGICAL_FORM,
    FIND_RELATION,
    Action,
    ActionResult,
    Failure,
    Item,
    Success,
)
from kbqa.logical_forms.actions import Action as FormAction
from kbqa.logical_forms.actions import (
    Compare,
    FindRelation,
    Order,
    TimeConstraint,
    apply,
    parse_action,
    print_action,
)
from kbqa.logical_forms.algebra import Entity, Expression, Join
from kbqa.logical_forms.algebra import Literal as FormLiteral
from kbqa.logical_forms.s_expression import parse_s_expression, print_literal, print_path, print_s_expression
from kbqa.protocols.base import AnswerKind, Dialogue, Opening, PredictedAnswer, Reply
from kbqa.protocols.registry import PROTOCOLS
from kbqa.protocols.turn_text import read_turn
from kbqa.trajectory import Question, Segment

ActionName = Literal["Find_relation", "Merge", "Order", "Compare", "Time_constraint", "Count"]
ALL_ACTIONS: tuple[ActionName, ...] = (
    "Find_relation",
    "Merge",
    "Order",
    "Compare",
    "Time_constraint",
    "Count",
)
_USAGE = {
    "Find_relation": "Find_relation [ entity or expression | relation ] : what the relation links to it",
    "Merge": "Merge [ expression | expression ] : members of both; one side may be a class",
    "Order": "Order [ MAX or MIN | expression | relation ] : members with the greatest or least value",
    "Compare": "Compare [ le, lt, ge or gt | relation | number ] : entities whose value compares so",
    "Time_constraint": "Time_constraint [ relation | time ] : members of the latest expression at that time",
    "Count": "Count [ expression ] : how many members",
}

_INSTRUCTION = """\
Answer the question by exploring a knowledge base step by step. Reason inside <think>...</think> first. Then \
take one or more actions, one a line, inside <action>...</action>; their results come back inside \
<information>...</information>, each as expression1, expression2, ... which later actions may name. Once you \
know, write the answers inside <answer>...</answer>: ids or values separated by spaces, or one expression, \
whose members are meant then.
Available Actions : {{
{actions}
}}
Begin from the candidate entities detected in the question.
"""

# For a model that never saw the dialect.
_GATED_RELATIONS = """\
A relation is named in words or by its id, without a direction: the graph finds the nearest one and says \
which it took; if none fits, it lists the neighbouring relations."""
_EXACT_RELATIONS = """\
A relation is named exactly, by its id or its name, without a direction; the graph refuses any other."""
_CHAT_RULES = """\
Entities are named as in the candidates or in results. Each of your messages is one turn, as in the example: \
one <think> and then one <action> or one <answer>, and nothing after it. <information> comes from the graph: \
never write it yourself.

Example
Candidate Entities: [ Emma ]
Question: which books did the author of Emma write ?
you: <think>From the book to its author, and back to all the author's books.</think><action>
Find_relation [ Emma | book.author ]
Find_relation [ expression1 | book.author ]
</action>
graph: <information>expression1 = (JOIN (R book.author) Emma)
result_mid_list: [ Jane Austen ]
expression2 = (JOIN book.author (JOIN (R book.author) Emma))
result_mid_list: [ Emma, Persuasion ]</information>
you: <think>The second expression holds them.</think><answer>expression2</answer>"""

_COMMAND = re.compile(r"<(action|answer)>(.*?)</\1>", re.DOTALL)
_REFERENCE = re.compile(r"\s*expression([0-9]{1,6})\s*", re.IGNORECASE)
_FINAL_TURN = (
    "Because this is the final turn, you must provide the final answer (only MID / number / date) "
    "after thinking."
)
# A listing of more than _LONG items shows only _SHOWN of them (released code).
_LONG, _SHOWN = 200, 50


@PROTOCOLS.register("kbqa_r1")
@dataclass(frozen=True, slots=True)
class KbqaR1:
    """The dialect.

    Attributes:
        prompt: `full` explains it to a pretrained model; `brief` holds the question and its
            entities alone, for a policy that learned the dialect in a cold start.
        actions: the actions that the prompt offers. The released code leaves Compare and Count out
            for WebQSP, and Time_constraint for GrailQA and GraphQuestions.
        top_k: number of candidates that an observation lists for a relation that was only similar.
        tau_high, tau_low: RRCG's thresholds; when unset, the defaults for the graph's encoder.
        gated: whether RRCG finds the relation that was meant. Without it (the ablation "w/o RRCG", V-C) a
            relation has to be written exactly, and an unknown one is refused without a hint at others.
        now: the day that NOW means in a time constraint; the graph's default when unset.
        strict: whether a well-formed turn has a thought with words. Otherwise an empty `<think></think>` will
            do, which the demonstrations of small policies have. A tag within its thought or its command, such
            as a second `<think>` or an `<information>` that the policy made up, is never well formed.
    """

    prompt: Literal["full", "brief"] = "full"
    actions: tuple[ActionName, ...] = ALL_ACTIONS
    top_k: int = 5
    tau_high: float | None = None
    tau_low: float | None = None
    gated: bool = True
    now: str | None = None
    strict: bool = False

    name: ClassVar[str] = "kbqa_r1"
    answers: ClassVar[AnswerKind] = AnswerKind.IDS
    tags: ClassVar[tuple[str, ...]] = (
        "<think>",
        "</think>",
        "<action>",
        "</action>",
        "<information>",
        "</information>",
        "<answer>",
        "</answer>",
    )
    stop: ClassVar[tuple[str, ...]] = ("</action>", "</answer>")

    def begin(self, question: Question, max_turns: int) -> KbqaR1Dialogue:
        return KbqaR1Dialogue(question, self)

    def gate(self) -> dict[str, Any]:
        """Arguments that gate an action's relations."""
        if not self.gated:
            return {"top_k": 1, "tau_high": 1.0, "tau_low": 1.0}
        thresholds = {"tau_high": self.tau_high, "tau_low": self.tau_low}
        return {"top_k": self.top_k, **{key: tau for key, tau in thresholds.items() if tau is not None}}


@dataclass(frozen=True, slots=True)
class _Made:
    """An expression of the episode and its members, as far as the graph listed them."""

    expression: Expression
    items: tuple[Item, ...]


class KbqaR1Dialogue(Dialogue):
    """An episode; it holds the table of expressions."""

    def __init__(self, question: Question, protocol: KbqaR1) -> None:
        self._question, self._protocol = question, protocol
        self._made: list[_Made] = []
        self._waiting: list[FormAction] = []
        self._told: list[str] = []
        self._seen: dict[str, dict[Item, None]] = {}  # id or label → items

    def prompt(self) -> list[Segment]:
        instruction = self._instruction if self._protocol.prompt == "full" else ""
        return [
            Segment(f"{instruction}Candidate Entities: [ "),
            Segment(", ".join(self._question.topic_entities), trusted=False),
            Segment(" ]\nQuestion: "),
            Segment(self._question.text, trusted=False),
            Segment("\n"),
        ]

    def opening(self, *, native_tools: bool) -> Opening:
        topics = ", ".join(self._question.topic_entities)
        user = f"Candidate Entities: [ {topics} ]\nQuestion: {self._question.text}"
        relations = _GATED_RELATIONS if self._protocol.gated else _EXACT_RELATIONS
        return Opening(f"{self._instruction}{relations} {_CHAT_RULES}", user)

    @property
    def _instruction(self) -> str:
        usage = "\n".join(f"  {_USAGE[name]}" for name in self._protocol.actions)
        return _INSTRUCTION.format(actions=usage)

    def reply(self, text: str) -> Reply:
        turn = read_turn(text, _COMMAND)
        if turn.kind is None:
            return Reply(turn.thought, problem="no <action> or <answer> was found")
        tidy = turn.is_sound(self._protocol.tags, silent=not self._protocol.strict)
        if turn.kind == "answer":
            return Reply(turn.thought, well_formed=tidy, answers=tuple(self._answers(turn.body)))
        self._waiting, self._told = [], []
        for line in turn.body.splitlines():
            if "[" in line and "]" in line:
                tidy = self._read(line) and tidy
        actions = self._next()
        if not actions:
            problem = "; ".join(self._told) or "no line Name [ argument | argument ] was found"
            return Reply(turn.thought, problem=problem)
        return Reply(turn.thought, well_formed=tidy, actions=actions)

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        (result,) = results
        if isinstance(result, Failure):
            self._told.append(_rejected(result) if self._protocol.gated else _refused(result))
        else:
            try:
                self._keep(result)
            except LogicalFormError as error:
                # The graph's names may be longer than the written ones, which can make it too long.
                self._told.append(f"the expression cannot be kept: {error}")
        return self._next()

    def observation(self, turns_left: int) -> list[Segment]:
        return _information("\n".join(self._told), turns_left)

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        return _information(problem, turns_left)

    def _read(self, line: str) -> bool:
        """Queue the action of a line, or report why it cannot be parsed; returns whether it was queued."""
        try:
            self._waiting.append(parse_action(line))
        except LogicalFormError as error:
            self._told.append(f"{line.strip()[:80]}: {error}")
            return False
        return True

    def _next(self) -> tuple[Action, ...]:
        """The next action that can be executed; reports the ones before it that cannot."""
        while self._waiting:
            action = self._waiting.pop(0)
            try:
                return (self._executable(action),)
            except LogicalFormError as error:
                self._told.append(str(error))
        return ()

    def _executable(self, action: FormAction) -> Action:
        """An action on the graph, with the expressions that it names written out.

        Raises:
            LogicalFormError: it names an expression that does not exist.
        """
        expressions = [made.expression for made in self._made]
        made = apply(action, expressions)
        if isinstance(action, FindRelation):
            assert isinstance(made, Join)
            return Action(
                FIND_RELATION,
                {
                    **_source(made.source),
                    "relation": print_path((action.relation,)),
                    **self._protocol.gate(),
                },
            )
        arguments: dict[str, Any] = {"expression": print_s_expression(made)}
        if isinstance(action, Order | Compare | TimeConstraint):
            arguments |= {"gate": True, **self._protocol.gate()}
        if self._protocol.now is not None:
            arguments["now"] = self._protocol.now
        return Action(EXECUTE_LOGICAL_FORM, arguments)

    def _keep(self, result: Success[Item]) -> None:
        """Number the expression of a result, and report its members.

        Raises:
            LogicalFormError: the expression is too large.
        """
        expression = parse_s_expression(result.details["expression"])
        for item in result.items:
            for name in {item.id, item.label}:
                self._seen.setdefault(name, {})[item] = None
        self._made.append(_Made(expression, result.items))
        lines = [f"expression{len(self._made)} = {result.details['expression']}"]
        lines += [_similar(verdict) for verdict in _verdicts(result)]
        lines.append(_listing(result))
        if "cvt" in result.details:
            lines.append(_hint(result.details["cvt"]))
        self._told.append("\n".join(line for line in lines if line))

    def _answers(self, body: str) -> Iterable[PredictedAnswer]:
        """The members of the named expression, or the listed names."""
        reference = _REFERENCE.fullmatch(body)
        if reference is not None and 1 <= int(reference[1]) <= len(self._made):
            return dict.fromkeys(map(_answer, self._made[int(reference[1]) - 1].items))
        pieces, start = body.split(), 0
        answers: list[PredictedAnswer] = []
        while start < len(pieces):
            # Names in plain graphs contain spaces: the longest run of words that was seen is one name.
            ends = range(len(pieces), start, -1)
            end = next((e for e in ends if " ".join(pieces[start:e]) in self._seen), start + 1)
            name = " ".join(pieces[start:end])
            answers += list(map(_answer, self._seen.get(name, ()))) or [PredictedAnswer(name)]
            start = end
        return dict.fromkeys(answers)


def write_actions(thought: str, actions: Sequence[FormAction]) -> str:
    """A turn that acts, as the parser reads it back."""
    lines = "\n".join(map(print_action, actions))
    return f"<think>{thought}</think><action>{lines}</action>"


def write_answer(thought: str, answers: Sequence[str]) -> str:
    """A turn that answers, as the parser reads it back; a single expression answers by reference."""
    return f"<think>{thought}</think><answer>{' '.join(answers)}</answer>"


def _source(source: Entity | FormLiteral | Expression) -> dict[str, str]:
    """The source of a relation, as arguments of the graph's action."""
    if isinstance(source, Entity):
        return {"entity": source.id}
    if isinstance(source, FormLiteral):
        return {"entity": print_literal(source)}
    return {"expression": print_s_expression(source)}


def _verdicts(result: Success[Item]) -> list[dict[str, Any]]:
    """The gate's verdict on each relation."""
    told = result.details
    if "relation" in told:
        return [{key: told[key] for key in ("tier", "relation", "candidates", "also") if key in told}]
    return list(told.get("relations", ()))


def _similar(verdict: dict[str, Any]) -> str:
    """The message about a relation that was only similar, or that fits the other direction as well."""
    relation, told = verdict["relation"], []
    if "candidates" in verdict:
        others = ", ".join(f"{c['id']} ({c['score']:.3f})" for c in verdict["candidates"])
        told.append(
            f"the most similar relation {relation['id']} was selected, score={relation['score']:.3f}; "
            f"the top {len(verdict['candidates'])} are [ {others} ]. "
            "If none of them fits, change the relation."
        )
    if "also" in verdict:
        told.append(f"{verdict['also']['id']} fits as well in the other direction.")
    return " ".join(told)


def _rejected(failed: Failure) -> str:
    """The message of a failure; for a rejected relation, with all neighbouring relations and scores."""
    candidates = failed.details.get("candidates", ())
    if not candidates:
        return failed.message
    neighbours = ", ".join(f"{c['id']} ({c['score']:.3f})" for c in candidates)
    return f"{failed.message}. The neighbouring relations are [ {neighbours} ]"


def _refused(failed: Failure) -> str:
    """The message of a failure; for a relation that does not exist there, without the most similar one."""
    return failed.message.partition("; ")[0] if "candidates" in failed.details else failed.message


def _listing(result: Success[Item]) -> str:
    shown = result.items if result.total <= _LONG else result.items[:_SHOWN]
    names = ", ".join(_shown(item) for item in shown)
    total = f" ... total {result.total} items" if len(shown) < result.total else ""
    return f"result_mid_list: [ {names}{total} ]"


def _shown(item: Item) -> str:
    if item.label == item.id or _is_value(item.id):
        return item.label
    return f"{item.id} ({item.label})"


def _answer(item: Item) -> PredictedAnswer:
    """An entity as its id, a literal as its value."""
    return PredictedAnswer(item.label if _is_value(item.id) else item.id, (item.id,))


def _is_value(id_: str) -> bool:
    return id_.startswith('"')


def _hint(cvt: dict[str, Any]) -> str:
    types = ", ".join(item["id"] for item in cvt["types"]) or "unknown"
    relations = ", ".join(item["id"] for item in cvt["relations"])
    return (
        f"{cvt['entities']} entities have no name and may stand for facts of several parts (type {types}): "
        f"go on from them, for instance by [ {relations} ]"
    )


def _information(text: str, turns_left: int) -> list[Segment]:
    closing = "</information>" if turns_left != 1 else f"</information>\n{_FINAL_TURN}\n"
    return [Segment("<information>"), Segment(text, trusted=False), Segment(closing)]
