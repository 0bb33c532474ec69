"""Baselines for any chat model: without the graph, with one query, and with several queries but no training.

They are defined as in KG-R1 (appendix C.1) and Learning-to-Refine (section 4.4), with prompts in our own
words. Each is a dialect, so that it is played like any other:

    vanilla         answers from what the model knows (KG-R1's Vanilla), greedy
    zero-shot-cot   reasons first, without an example (KG-R1's CoT), greedy
    cot             reasons first, shown by two examples (Learning-to-Refine's B1), greedy
    one-shot        writes one query, whose rows are the answer (its B2), temperature 0.2, top-p 0.95
    iterative       queries in turns, by Learning-to-Refine's own prompt, untrained (its B3), greedy
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kbqa.environment import Budget, ChatEpisode
from kbqa.kg.actions import EXECUTE_SPARQL, Action, ActionResult, Failure, GraphTools, named
from kbqa.policies.base import ChatPolicy
from kbqa.protocols import AgentProtocol, Dialogue, Opening, PredictedAnswer, Reply
from kbqa.protocols.sparql_refinement import SparqlRefinement
from kbqa.protocols.sparql_terms import Topics, rows_text
from kbqa.rollouts import ChatAgent, Player
from kbqa.trajectory import Question, Segment, Status

_LIST = re.compile(r"answers\s*:\s*(\[.*?\](?=\s*$|\s*\n)|[^\n]*)", re.IGNORECASE | re.DOTALL)
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'")
_FENCE = re.compile(r"```(?:sparql)?\s*\n(.*?)```", re.IGNORECASE | re.DOTALL)
_QUERY = re.compile(
    r"(?:\b(?:PREFIX|BASE)\b[^{]*?)?\b(?:SELECT\s+(?:DISTINCT\b|REDUCED\b|[?$*(])|ASK\s*(?:WHERE\s*)?\{).*",
    re.IGNORECASE | re.DOTALL,
)

_SHOWN_ROWS = 20

_FORM = """\
Give the answer as a list of names on a line of its own, even if there is but one: Answers: ["name", …]"""

_VANILLA = f"Answer the question from what you know, briefly and without an explanation. {_FORM}"

_ZERO_SHOT_COT = f"""\
Answer the question from what you know. First write "Reasoning:" and think it through step by step; only \
then close with the answer. {_FORM}"""

_COT = f"""\
{_ZERO_SHOT_COT}

Question: which river flows through the capital of the country where Mozart was born?
Reasoning: Mozart was born in Salzburg, which lies in Austria today. The capital of Austria is Vienna. The \
river that flows through Vienna is the Danube.
Answers: ["Danube"]

Question: who were the children of the woman who found radium?
Reasoning: Radium was found by Marie Curie, together with her husband. They had two daughters: Irène, who \
became a chemist, too, and Ève, who wrote her mother's biography.
Answers: ["Irène Joliot-Curie", "Ève Curie"]"""

_ONE_SHOT = """\
Write one SPARQL query over a knowledge graph whose rows are the answer to the question. It has to be \
complete, since it is executed once and as it stands. The entities of the question are given as terms to use \
in it. Select the answer alone. Reply with nothing but the query, in a block that opens with ```sparql and \
ends with ```."""


class SingleReply(Dialogue):
    """A dialogue that ends with its first reply, or with the result of the query in it.

    Args:
        read: parses the reply.
    """

    def __init__(self, system: str, question: Question, read: Callable[[str], Reply]) -> None:
        self._system, self._question, self._read = system, question, read
        self._result: ActionResult | None = None

    @property
    def _user(self) -> str:
        return f"Question: {self._question.text}"

    def prompt(self) -> list[Segment]:
        return [Segment(f"{self._system}\n\n"), Segment(self._user, trusted=False), Segment("\n")]

    def opening(self, *, native_tools: bool) -> Opening:
        return Opening(self._system, self._user)

    def reply(self, text: str) -> Reply:
        return self._read(text)

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        [self._result] = results
        return ()

    def observation(self, turns_left: int) -> list[Segment]:
        assert self._result is not None
        if isinstance(self._result, Failure):
            text = f"error: {self._result.message}"
        else:
            text = rows_text(self._result, max_rows=_SHOWN_ROWS)
        return [Segment("<query_result>"), Segment(text, trusted=False), Segment("</query_result>")]

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        return [Segment(""), Segment("")]  # never read: every problem is fatal


class SingleQuery(SingleReply):
    """A dialogue of one query, whose prompt shows the topic entities with their labels."""

    def __init__(self, question: Question) -> None:
        super().__init__(_ONE_SHOT, question, read_query)
        self._topics = Topics(question.topic_entities)

    def first_look(self) -> tuple[Action, ...]:
        return self._topics.look()

    @property
    def _user(self) -> str:
        return f"{super()._user}\nEntities: {self._topics.text()}"

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        return () if self._topics.take(results) else super().take(results)


@dataclass(frozen=True, slots=True)
class Direct:
    """Vanilla and CoT: an answer from what the model knows.

    Attributes:
        instruction: the system prompt.
    """

    instruction: str

    name: ClassVar[str] = "direct"
    tags: ClassVar[tuple[str, ...]] = ()
    stop: ClassVar[tuple[str, ...]] = ()

    def begin(self, question: Question, max_turns: int) -> SingleReply:
        return SingleReply(self.instruction, question, read_answers)


@dataclass(frozen=True, slots=True)
class OneShotSparql:
    """A single query and nothing else."""

    name: ClassVar[str] = "one_shot_sparql"
    tags: ClassVar[tuple[str, ...]] = ()
    stop: ClassVar[tuple[str, ...]] = ()

    def begin(self, question: Question, max_turns: int) -> SingleQuery:
        return SingleQuery(question)


class OneShotEpisode(ChatEpisode):
    """Ends after its query was executed; the values of the first variable are the answers."""

    def observe(self, results: Sequence[ActionResult]) -> None:
        super().observe(results)
        if self.done or not self.turns:  # the look at the topic entities comes before the turn
            return
        [result] = results
        if isinstance(result, Failure):
            self.status = Status.ACTION_ERROR
            return
        self._answers, self.status = _answers(result.items, result.details), Status.ANSWERED


@dataclass(frozen=True, slots=True)
class OneShotAgent(ChatAgent):
    """Plays `OneShotEpisode`s."""

    def begin(self, question: Question) -> ChatEpisode:
        return OneShotEpisode(question, self.protocol, self.budget, native_tools=False)


@dataclass(frozen=True, slots=True)
class ChatBaseline:
    """A baseline and how it is played.

    Attributes:
        agent: the class that plays it.
        temperature: of every run; if it is 0, runs after the first use `again`.
        extra: parameters of every request.
    """

    protocol: AgentProtocol
    budget: Budget
    agent: type[ChatAgent] = ChatAgent
    temperature: float = 0.0
    again: float = 1.0
    extra: Mapping[str, Any] = field(default_factory=dict)


_REPLY = Budget(max_turns=1, max_tokens=16_384, max_turn_tokens=1024, max_observation_tokens=512)
# One turn and the query's result, which ends the episode.
_REPLY_AND_RESULT = Budget(max_turns=2, max_tokens=16_384, max_turn_tokens=1024, max_observation_tokens=512)
# Ten cycles of thought and query, and the answer (Learning-to-Refine, section 4.3).
_CYCLES = Budget(max_turns=11, max_tokens=16_384, max_turn_tokens=512, max_observation_tokens=512)

BASELINES: Mapping[str, ChatBaseline] = {
    "vanilla": ChatBaseline(Direct(_VANILLA), _REPLY),
    "zero-shot-cot": ChatBaseline(Direct(_ZERO_SHOT_COT), _REPLY),
    "cot": ChatBaseline(Direct(_COT), _REPLY),
    "one-shot": ChatBaseline(
        OneShotSparql(), _REPLY_AND_RESULT, OneShotAgent, temperature=0.2, extra={"top_p": 0.95}
    ),
    "iterative": ChatBaseline(SparqlRefinement(), _CYCLES),
}


def baseline_player(name: str, policy: ChatPolicy, tools: GraphTools, run: int) -> tuple[Player[Any], float]:
    """The player of a baseline, and the temperature of a run.

    Args:
        policy: must send the baseline's `extra`.
        run: number of the run, from 0.
    """
    baseline = BASELINES[name]
    agent = baseline.agent(policy, baseline.protocol, tools, baseline.budget, native_tools=False)
    return agent, baseline.temperature or (baseline.again if run else 0.0)


def read_answers(text: str) -> Reply:
    """Read the text after the last "Answers:": a list, or names separated by commas."""
    found = list(_LIST.finditer(text))
    if not found:
        return Reply(text.strip(), problem="no line with answers", fatal=True)
    written, thought = found[-1][1].strip(), text[: found[-1].start()].strip()
    is_list = written.startswith("[")
    names = _names(written) if is_list else [name.strip(" .") for name in written.split(",")]
    unique = dict.fromkeys(filter(None, map(str.strip, names)))
    return Reply(
        thought.removeprefix("Reasoning:").strip(), True, answers=tuple(map(PredictedAnswer, unique))
    )


def read_query(text: str) -> Reply:
    """Read the query in a reply: in a code block, or from the first keyword on."""
    fenced = _FENCE.search(text)
    found = _QUERY.search(fenced[1] if fenced else text)
    if found is None:
        return Reply(text.strip(), problem="no query", fatal=True)
    query = found[0].strip().rstrip("`").strip()
    thought = text[: fenced.start()] if fenced else text[: found.start()]
    return Reply(thought.strip(), fenced is not None, actions=(Action(EXECUTE_SPARQL, {"query": query}),))


def _names(written: str) -> list[str]:
    """The names in a list, in the syntax of JSON or Python."""
    try:
        values = json.loads(written)
    except (ValueError, RecursionError):
        return [double or single for double, single in _QUOTED.findall(written)]
    return [str(value) for value in values]


def _answers(rows: Sequence[Mapping[str, Any]], details: Mapping[str, Any]) -> tuple[PredictedAnswer, ...]:
    """The values of the first variable, or the truth value of an ASK."""
    if "boolean" in details:
        return (PredictedAnswer(str(details["boolean"]).lower()),)
    variable = next(iter(details.get("variables", ())), "")
    ids: dict[str, dict[str, None]] = {}
    for row in rows:
        for item in named([{variable: row[variable]}] if variable in row else []):
            ids.setdefault(item.label, {})[item.id] = None
    return tuple(PredictedAnswer(label, tuple(of)) for label, of in ids.items())
