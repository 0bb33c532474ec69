"""Learning-to-Refine's dialect: `<think>`, `<query>`, `<query_result>`, `<answer>`.

Each turn thinks and then either executes a SPARQL query or gives the answer, a scalar
(section 3.2). Output of any other shape ends the episode. The prompt is in our own words
around the paper's tags; its example shows a refinement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from kbqa.kg.actions import EXECUTE_SPARQL, Action, ActionResult, Failure, named
from kbqa.protocols.base import Dialogue, Opening, PredictedAnswer, Reply
from kbqa.protocols.registry import PROTOCOLS
from kbqa.protocols.seen import SeenEntities
from kbqa.protocols.sparql_terms import Topics, rows_text
from kbqa.trajectory import Question, Segment

_TURN = re.compile(
    r"\s*<think>(?P<thought>.*?)</think>\s*<(?P<kind>query|answer)>(?P<body>.*?)</(?P=kind)>\s*", re.DOTALL
)
_TAG = re.compile(r"</?(?:think|query|query_result|answer)>")

_INSTRUCTION = """\
Answer the question with SPARQL over a knowledge graph. In each turn reason inside <think>...</think>, then \
do one of two things: execute one query inside <query>...</query> and read its rows, or its error, inside \
<query_result>...</query_result>; or give the final answer, a single value, inside <answer>...</answer>. \
At most {max_queries} queries. Anything else ends the attempt. If a query fails or finds nothing, say why \
and send a better one. The entities of the question are given as terms to use in queries.

Example
Question: In which country was the painter of the Mona Lisa born?
Entities: Mona Lisa (wd:Q12418)
<think>The painter is its creator (P170); his place of birth (P19) lies in a country (P17).</think>
<query>SELECT ?country WHERE {{ wd:Q12418 wdt:P170 ?p . ?p wdt:P19 ?place . ?place wdt:P17 ?country</query>
<query_result>error: the query does not parse: a closing brace is missing</query_result>
<think>I close the group.</think>
<query>SELECT ?country WHERE {{ wd:Q12418 wdt:P170 ?p . ?p wdt:P19 ?place . ?place wdt:P17 ?country }}</query>
<query_result>Italy (wd:Q38)</query_result>
<think>One row answers it.</think>
<answer>Italy</answer>

"""

# For a model that never saw the dialect.
_CHAT_RULES = """\
Each of your messages is one turn of that form: one <think> and then one <query> or one <answer>, with \
nothing before, between or after them, or the attempt is over. <query_result> comes from the graph: never \
write it."""


@PROTOCOLS.register("sparql_refinement")
@dataclass(frozen=True, slots=True)
class SparqlRefinement:
    """The dialect.

    Attributes:
        prompt: `full` explains it to a pretrained model; `brief` holds the question and its
            entities alone, for a policy that learned the dialect in a cold start.
        max_rows: maximum rows of a result that the policy reads.
    """

    prompt: Literal["full", "brief"] = "full"
    max_rows: int = 20

    name: ClassVar[str] = "sparql_refinement"
    tags: ClassVar[tuple[str, ...]] = (
        "<think>",
        "</think>",
        "<query>",
        "</query>",
        "<query_result>",
        "</query_result>",
        "<answer>",
        "</answer>",
    )
    stop: ClassVar[tuple[str, ...]] = ("</query>", "</answer>")

    def begin(self, question: Question, max_turns: int) -> SparqlRefinementDialogue:
        return SparqlRefinementDialogue(question, max_turns, self)


class SparqlRefinementDialogue(Dialogue):
    """An episode; it remembers the entities that its results showed."""

    def __init__(self, question: Question, max_turns: int, protocol: SparqlRefinement) -> None:
        self._question, self._protocol = question, protocol
        self._topics = Topics(question.topic_entities)
        self._instruction = _INSTRUCTION.format(max_queries=max_turns - 1)
        self._seen = SeenEntities()
        self._result: ActionResult | None = None

    def first_look(self) -> tuple[Action, ...]:
        return self._topics.look()

    def prompt(self) -> list[Segment]:
        instruction = self._instruction if self._protocol.prompt == "full" else ""
        return [
            Segment(f"{instruction}Question: "),
            Segment(self._question.text, trusted=False),
            Segment("\nEntities: "),
            Segment(self._topics.text(), trusted=False),
            Segment("\n"),
        ]

    def opening(self, *, native_tools: bool) -> Opening:
        user = f"Question: {self._question.text}\nEntities: {self._topics.text()}"
        return Opening(self._instruction + _CHAT_RULES, user)

    def reply(self, text: str) -> Reply:
        turn = _TURN.fullmatch(text)
        if turn is None or _TAG.search(turn["thought"]) or _TAG.search(turn["body"]):
            return Reply(problem="not one <think> and one <query> or <answer>", fatal=True)
        thought, body = turn["thought"].strip(), turn["body"].strip()
        if turn["kind"] == "query":
            return Reply(thought, well_formed=True, actions=(Action(EXECUTE_SPARQL, {"query": body}),))
        answers = (PredictedAnswer(body, self._seen.ids(body)),) if body else ()
        return Reply(thought, well_formed=True, answers=answers)

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        if self._topics.take(results):
            return ()
        (self._result,) = results
        if not isinstance(self._result, Failure):
            self._seen.add(named(self._result.items))
        return ()

    def observation(self, turns_left: int) -> list[Segment]:
        assert self._result is not None
        if isinstance(self._result, Failure):
            text = f"error: {self._result.message}"
        else:
            text = rows_text(self._result, max_rows=self._protocol.max_rows)
        return _result(text)

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        return _result(f"error: {problem}")  # never read: every problem is fatal


def _result(text: str) -> list[Segment]:
    return [Segment("<query_result>"), Segment(text, trusted=False), Segment("</query_result>")]


def write_query(thought: str, query: str) -> str:
    """A turn that queries, as the parser reads it back."""
    return f"<think>{thought}</think><query>{query}</query>"


def write_answer(thought: str, answer: str) -> str:
    """A turn that answers, as the parser reads it back."""
    return f"<think>{thought}</think><answer>{answer}</answer>"
