"""Learning-to-Refine's dialect: `<think>`, `<query>`, `<query_result>`, `<answer>`.

Each turn thinks and then either executes a SPARQL query or gives the answer, a scalar
(section 3.2). Output of any other shape ends the episode. The prompt is in our own words
around the paper's tags; its examples are refinements (few-shot, section 3.2.2). A chat model reads the
same prompt as a policy in training, as the paper's baseline B3 does (section 4.4).
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

_COMMAND = r"\s*<(?P<kind>query|answer)>(?P<body>.*?)</(?P=kind)>\s*"
_DELIBERATE = re.compile(r"\s*<think>(?P<thought>.*?)</think>" + _COMMAND, re.DOTALL)
_REACTIVE = re.compile("(?P<thought>)" + _COMMAND, re.DOTALL)
_TAG = re.compile(r"</?(?:think|query|query_result|answer)>")
_THOUGHT = re.compile(r"<think>.*?</think>\n", re.DOTALL)

_TASK = """\
Answer the question with SPARQL over a knowledge graph. In each turn {turn}: execute one query inside \
<query>...</query> and read its rows, or its error, inside <query_result>...</query_result>; or give the \
final answer, a single value, inside <answer>...</answer>. At most {queries} queries. Write nothing before, \
between or after these parts, and never a <query_result>: anything else ends the attempt. If a query fails \
or finds nothing, send a better one. The entities of the question are given as terms to use in queries.
"""
_DELIBERATION = "reason inside <think>...</think>, then do one of two things"
_REACTION = "do one of two things, without any reasoning"

# Refinements of a query that does not parse, of one that finds nothing, and of one that leaves a doubt.
_EXAMPLES = """
Example
Question: In which country was the painter of the Mona Lisa born?
Entities: Mona Lisa (wd:Q12418)
<think>The painter is its creator (P170); his place of birth (P19) lies in a country (P17).</think>
<query>SELECT ?country WHERE { wd:Q12418 wdt:P170 ?p . ?p wdt:P19 ?place . ?place wdt:P17 ?country</query>
<query_result>error: the query does not parse: a closing brace is missing</query_result>
<think>I close the group.</think>
<query>SELECT ?country WHERE { wd:Q12418 wdt:P170 ?p . ?p wdt:P19 ?place . ?place wdt:P17 ?country }</query>
<query_result>Italy (wd:Q38)</query_result>
<think>One row answers it.</think>
<answer>Italy</answer>

Example
Question: What is the capital of the state that Lake Balaton lies in?
Entities: Lake Balaton (wd:Q4110)
<think>The state (P17) has a capital (P36).</think>
<query>SELECT ?capital WHERE { ?capital wdt:P36 ?state . wd:Q4110 wdt:P17 ?state }</query>
<query_result>No results.</query_result>
<think>P36 leads from the state to its capital, so I turn it round.</think>
<query>SELECT ?capital WHERE { wd:Q4110 wdt:P17 ?state . ?state wdt:P36 ?capital }</query>
<query_result>Budapest (wd:Q1781)</query_result>
<think>One row answers it.</think>
<answer>Budapest</answer>

Example
Question: Is Charles Darwin older than Abraham Lincoln?
Entities: Charles Darwin (wd:Q1035), Abraham Lincoln (wd:Q91)
<think>I compare their dates of birth (P569).</think>
<query>SELECT ?darwin ?lincoln WHERE { wd:Q1035 wdt:P569 ?darwin . wd:Q91 wdt:P569 ?lincoln }</query>
<query_result>1809-02-12T00:00:00Z | 1809-02-12T00:00:00Z</query_result>
<think>They were born on the same day; I let the graph compare them, too.</think>
<query>ASK { wd:Q1035 wdt:P569 ?darwin . wd:Q91 wdt:P569 ?lincoln . FILTER (?darwin < ?lincoln) }</query>
<query_result>false</query_result>
<think>He is not older.</think>
<answer>false</answer>

"""


@PROTOCOLS.register("sparql_refinement")
@dataclass(frozen=True, slots=True)
class SparqlRefinement:
    """The dialect.

    Attributes:
        prompt: `full` explains it to a pretrained model; `brief` holds the question and its
            entities alone, for a policy that learned the dialect in a cold start.
        max_rows: maximum rows of a result that the policy reads.
        reasons: whether each turn begins with a `<think>` block; without it, this is the reactive agent
            of the paper's ablation (section 5.2).
    """

    prompt: Literal["full", "brief"] = "full"
    max_rows: int = 20
    reasons: bool = True

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
        self._max_queries = max_turns - 1
        self._topics = Topics(question.topic_entities)
        self._seen = SeenEntities()
        self._result: ActionResult | None = None

    def first_look(self) -> tuple[Action, ...]:
        return self._topics.look()

    def prompt(self) -> list[Segment]:
        return self._prompt(self._instruction if self._protocol.prompt == "full" else "")

    def opening(self, *, native_tools: bool) -> Opening:
        return Opening("", "".join(segment.text for segment in self._prompt(self._instruction)))

    @property
    def _instruction(self) -> str:
        turn = _DELIBERATION if self._protocol.reasons else _REACTION
        examples = _EXAMPLES if self._protocol.reasons else _THOUGHT.sub("", _EXAMPLES)
        return _TASK.format(turn=turn, queries=self._max_queries) + examples

    def _prompt(self, instruction: str) -> list[Segment]:
        return [
            Segment(f"{instruction}Question: "),
            Segment(self._question.text, trusted=False),
            Segment("\nEntities: "),
            Segment(self._topics.text(), trusted=False),
            Segment("\n"),
        ]

    def reply(self, text: str) -> Reply:
        turn = (_DELIBERATE if self._protocol.reasons else _REACTIVE).fullmatch(text)
        if turn is None or _TAG.search(turn["thought"]) or _TAG.search(turn["body"]):
            expected = "one <think> and one <query> or <answer>"
            problem = (
                f"not {expected if self._protocol.reasons else expected.removeprefix('one <think> and ')}"
            )
            return Reply(problem=problem, fatal=True)
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


def write_query(thought: str | None, query: str) -> str:
    """A turn that queries, as the parser reads it back; None leaves out the thought."""
    return f"{_thought(thought)}<query>{query}</query>"


def write_answer(thought: str | None, answer: str) -> str:
    """A turn that answers, as the parser reads it back; None leaves out the thought."""
    return f"{_thought(thought)}<answer>{answer}</answer>"


def _thought(thought: str | None) -> str:
    return "" if thought is None else f"<think>{thought}</think>"
