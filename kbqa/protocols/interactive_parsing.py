r"""ISP-KGR's dialect: `<think>`, `<node>`, `<relation>`, `<sparql>`, `<information>`, `<answer>`, `\boxed{}`.

A turn is one thought and one command (section 4.1): a node whose relations the policy wants to
see, a SPARQL query, or the answer. The prompt is in our own words around the paper's tags
(Figure 8); the texts after commands without results are those of the released code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kbqa.kg.actions import (
    EXECUTE_SPARQL,
    NODE_RELATIONS,
    Action,
    ActionResult,
    Failure,
    Success,
    named,
)
from kbqa.protocols.base import Dialogue, Opening, PredictedAnswer, Reply
from kbqa.protocols.registry import PROTOCOLS
from kbqa.protocols.seen import SeenEntities
from kbqa.protocols.sparql_terms import (
    VARIABLE,
    Topics,
    answers_by_reference,
    entity_id,
    rows_text,
)
from kbqa.protocols.turn_text import read_turn
from kbqa.trajectory import Question, Segment

NO_RELATIONS = "No relevant relations found for the given node query."
NO_RESULTS = "No results found for the given SPARQL query.\nPlease try generating a different SPARQL query."

_INSTRUCTION = """\
You answer questions by querying a knowledge graph, which is up and running: if it returns nothing of use, \
the request was at fault. Each turn reasons inside <think>...</think> and then gives exactly one command:
<node>...</node> asks which relations surround a node, named by its id or by a variable of one of your \
queries. They come back inside <relation>...</relation>, where <node> marks the place of your node, before \
or after the relation, and ?a and ?b stand for what it is linked to. Use no relations but those.
<sparql>...</sparql> executes a SPARQL query; its rows come back inside <information>...</information>. If \
there are none, try another query.
<answer>...</answer> ends the dialogue, the answers inside \\boxed{...} and separated by commas"""
_BY_REFERENCE = "; \\boxed{?x} stands for all that your last query with ?x found"

# For a model that never saw the dialect.
_CHAT_RULES = """\
Each of your messages is one turn, as in the example: one <think> and then one command, and \
nothing after it; a query holds no blank line. <relation> and <information> come from the graph: never write \
them yourself. Write entities and relations in queries as the dialogue writes them, with their prefix (in \
Freebase ns:).

Example
Question: which books did the author of Emma write ?
Entities: Emma(m.0emma)
you: <think>I look at what surrounds the book.</think><node>m.0emma</node>
graph: <relation><node> book.author ?a
<node> book.published ?a</relation>
you: <think>The author comes first.</think><sparql>SELECT ?x WHERE { ns:m.0emma ns:book.author ?x }</sparql>
graph: <information>Jane Austen (ns:m.0jane)</information>
you: <think>And now all books with that author.</think>\
<sparql>SELECT ?y WHERE { ns:m.0emma ns:book.author ?x . ?y ns:book.author ?x }</sparql>
graph: <information>Emma (ns:m.0emma)
Persuasion (ns:m.0pers)</information>
you: <think>These are they.</think><answer>\\boxed{Emma, Persuasion}</answer>"""

_COMMAND = re.compile(r"<(node|sparql|SPARQL|answer)>(.*?)</\1>", re.DOTALL)
# Accepted in place of <sparql>, since the paper's prompt has both (Figure 8).
_OTHER_TAGS = ("<SPARQL>", "</SPARQL>")
# The format reward is there to keep queries compact (F.6).
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_BOX = re.compile(r"\\boxed\{(.*)\}", re.DOTALL)
_ITEM = re.compile(r'\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<bare>[^,]+))', re.DOTALL)


@PROTOCOLS.register("interactive_parsing")
@dataclass(frozen=True, slots=True)
class InteractiveParsing:
    """The dialect.

    Attributes:
        prompt: `full` explains it to a pretrained model; `brief` holds the question and its
            entities alone, for a policy that learned the dialect in a cold start.
        top_k: maximum relations, or pairs of relations, shown for a node.
        max_rows: maximum rows of a result that the policy reads.
        by_reference: whether `\\boxed{?x}` answers with all that the last query with ?x found. The paper's
            answers are lists; a variable saves a small policy from copying names.
        strict: whether a well-formed turn has a thought with words. Otherwise an empty `<think></think>` will
            do, which the demonstrations of small policies have. A tag within its thought or its command, such
            as a second `<think>` or a `<relation>` that the policy made up, is never well formed.
    """

    prompt: Literal["full", "brief"] = "full"
    top_k: int = 10
    max_rows: int = 20
    by_reference: bool = True
    strict: bool = False

    name: ClassVar[str] = "interactive_parsing"
    tags: ClassVar[tuple[str, ...]] = (
        "<think>",
        "</think>",
        "<node>",
        "</node>",
        "<relation>",
        "</relation>",
        "<sparql>",
        "</sparql>",
        "<information>",
        "</information>",
        "<answer>",
        "</answer>",
    )
    stop: ClassVar[tuple[str, ...]] = ("</node>", "</sparql>", "</SPARQL>", "</answer>")

    def begin(self, question: Question, max_turns: int) -> InteractiveParsingDialogue:
        return InteractiveParsingDialogue(question, self)

    @property
    def instruction(self) -> str:
        return f"{_INSTRUCTION}{_BY_REFERENCE if self.by_reference else ''}.\n\n"


@dataclass(frozen=True, slots=True)
class _Query:
    """A query of the episode that found something."""

    text: str
    result: Success[Any]

    def mentions(self, variable: str) -> bool:
        return variable[1:] in {name[1:] for name in VARIABLE.findall(self.text)}


class InteractiveParsingDialogue(Dialogue):
    """An episode; it remembers its queries and the entities that they showed."""

    def __init__(self, question: Question, protocol: InteractiveParsing) -> None:
        self._question, self._protocol = question, protocol
        self._topics = Topics(question.topic_entities)
        self._seen = SeenEntities()
        self._queries: list[_Query] = []
        self._action = Action("")
        self._result: ActionResult | None = None

    def first_look(self) -> tuple[Action, ...]:
        return self._topics.look()

    def prompt(self) -> list[Segment]:
        instruction = self._protocol.instruction if self._protocol.prompt == "full" else ""
        return [
            Segment(f"{instruction}Question: "),
            Segment(self._question.text, trusted=False),
            Segment("\nEntities: "),
            Segment(self._topics.text(gap="", bare=True), trusted=False),
            Segment("\n"),
        ]

    def opening(self, *, native_tools: bool) -> Opening:
        user = f"Question: {self._question.text}\nEntities: {self._topics.text(gap='', bare=True)}"
        return Opening(self._protocol.instruction + _CHAT_RULES, user)

    def reply(self, text: str) -> Reply:
        turn = read_turn(text, _COMMAND)
        if turn.kind is None:
            return Reply(turn.thought, problem="no <node>, <sparql> or <answer> was found")
        reasoning, kind, body = turn.thought, turn.kind.lower(), turn.body
        sound = turn.is_sound((*self._protocol.tags, *_OTHER_TAGS), silent=not self._protocol.strict)
        tidy = sound and not _BLANK_LINE.search(body)
        if kind == "answer":
            box = _BOX.search(body)
            answers = self._answers(box[1]) if box else ()
            return Reply(reasoning, well_formed=tidy and box is not None, answers=answers)
        if not body.strip():
            return Reply(reasoning, problem=f"<{kind}> is empty")
        self._action = self._node(body.strip()) if kind == "node" else _sparql(body)
        return Reply(reasoning, well_formed=tidy, actions=(self._action,))

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        if self._topics.take(results):
            return ()
        (self._result,) = results
        if self._action.name == EXECUTE_SPARQL and isinstance(self._result, Success) and self._result.items:
            self._seen.add(named(self._result.items))
            self._queries.append(_Query(self._action.arguments["query"], self._result))
        return ()

    def observation(self, turns_left: int) -> list[Segment]:
        assert self._result is not None
        found = None if isinstance(self._result, Failure) else self._result
        if self._action.name == NODE_RELATIONS:
            text = "\n".join(item["line"] for item in found.items) if found else ""
            return [
                Segment("<relation>"),
                Segment(text or NO_RELATIONS, trusted=False),
                Segment("</relation>"),
            ]
        if found is None or not (any(found.items) or "boolean" in found.details):
            return _information(NO_RESULTS)
        return _information(rows_text(found, max_rows=self._protocol.max_rows))

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        return _information(problem)

    def _node(self, node: str) -> Action:
        """A node by id, or a variable together with the latest query in which it occurs."""
        arguments: dict[str, Any] = {"question": self._question.text, "limit": self._protocol.top_k}
        if not VARIABLE.fullmatch(node):
            return Action(NODE_RELATIONS, {"node": entity_id(node), **arguments})
        query = next((query for query in reversed(self._queries) if query.mentions(node)), None)
        # Without a query the graph refuses the variable, like any unknown node.
        resolved = {} if query is None else {"query": query.text}
        return Action(NODE_RELATIONS, {"node": f"?{node[1:]}", **resolved, **arguments})

    def _answers(self, boxed: str) -> tuple[PredictedAnswer, ...]:
        """The answers that a box lists, or that its variable stands for."""
        boxed = boxed.strip()
        if self._protocol.by_reference and VARIABLE.fullmatch(boxed):
            return answers_by_reference([query.result for query in self._queries], boxed)
        names = [boxed] if boxed in self._seen else _listed(boxed)
        return tuple(PredictedAnswer(name, self._seen.ids(name)) for name in dict.fromkeys(names))


def write_node(thought: str, node: str) -> str:
    """A turn that asks for a node's relations, as the parser reads it back."""
    return f"<think>{thought}</think><node>{node}</node>"


def write_sparql(thought: str, query: str) -> str:
    """A turn that queries, as the parser reads it back."""
    return f"<think>{thought}</think><sparql>{query}</sparql>"


def write_answer(thought: str, answers: Sequence[str]) -> str:
    """A turn that answers, as the parser reads it back; a single variable answers by reference."""
    boxed = ", ".join(
        f'"{_escaped(answer)}"' if re.search(r'[,"\\\[]', answer) else answer for answer in answers
    )
    return f"<think>{thought}</think><answer>\\boxed{{{boxed}}}</answer>"


def _sparql(body: str) -> Action:
    return Action(EXECUTE_SPARQL, {"query": body.strip()})


def _listed(text: str) -> list[str]:
    """Items separated by commas, in quotes if they contain one; the list may be in brackets."""
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    names = (
        re.sub(r"\\(.)", r"\1", item["quoted"]) if item["bare"] is None else item["bare"]
        for item in _ITEM.finditer(inner)
    )
    return [name.strip() for name in names if name.strip()]


def _escaped(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)


def _information(text: str) -> list[Segment]:
    return [Segment("<information>"), Segment(text, trusted=False), Segment("</information>")]
