r"""KnowCoder-A1's dialect: `<think>`, `<tool_call>`, `<tool_response>`, `<answer>` with `\boxed{[...]}`.

Three tools (section 3.2) are called in the format of Qwen and Hermes, one JSON object per
turn. Error texts are those of Interactive-KBQA, from which the paper takes its tools. The prompt
is in our own words around the paper's tags, placeholders and signatures (appendix E).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kbqa.kg.actions import (
    EXECUTE_SPARQL,
    SEARCH_GRAPH_PATTERNS,
    SEARCH_TYPES,
    Action,
    ActionResult,
    ErrorKind,
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
    entity_term,
    is_plain_name,
)
from kbqa.protocols.turn_text import read_json, read_turn
from kbqa.trajectory import Question, Segment

# Name of a tool → the action behind it, and the action's name for each of the tool's arguments.
_TOOLS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "SearchTypes": (SEARCH_TYPES, {"query": "query"}),
    "SearchGraphPatterns": (SEARCH_GRAPH_PATTERNS, {"sparql": "sparql", "semantic": "semantic"}),
    "ExecuteSPARQL": (EXECUTE_SPARQL, {"sparql": "query"}),
}
_REQUIRED = {"SearchTypes": "query", "SearchGraphPatterns": "sparql", "ExecuteSPARQL": "sparql"}

_SIGNATURES = [
    {
        "name": "SearchGraphPatterns",
        "description": "Finds one- and two-hop subgraphs around the variable of a query that begins with "
        "SELECT DISTINCT ?x WHERE, with ?x as head or as tail; ranked by `semantic` if it is given.",
        "parameters": {
            "type": "object",
            "properties": {
                "sparql": {"type": "string", "description": "a query that says what ?x may be"},
                "semantic": {"type": "string", "description": "the meaning of the relation looked for"},
            },
            "required": ["sparql"],
        },
    },
    {
        "name": "ExecuteSPARQL",
        "description": "Executes a SPARQL query and returns what it finds.",
        "parameters": {
            "type": "object",
            "properties": {"sparql": {"type": "string", "description": "the query"}},
            "required": ["sparql"],
        },
    },
    {
        "name": "SearchTypes",
        "description": "Finds types by meaning: to begin where no topic entity is given, or to narrow "
        "results by SELECT DISTINCT ?x WHERE { ?x ns:type.object.type ns:<type_name> }.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "what the type means"}},
            "required": ["query"],
        },
    },
]

_TASK = """\
You answer questions over a knowledge graph, writing SPARQL that you improve step by step with tools.
"""
_TOOLS_TEXT = "\n".join(json.dumps({"type": "function", "function": signature}) for signature in _SIGNATURES)
_INSTRUCTION = f"""\
{_TASK}<tools>
{_TOOLS_TEXT}
</tools>
Split a complex question into sub-questions and solve one after the other, with as many calls as you need. \
Each turn reasons inside <think>...</think> and then either calls one tool,
<tool_call>
{{"name": <tool>, "arguments": <object>}}
</tool_call>
whose result you read inside <tool_response>...</tool_response>, or ends with
<answer> the answer is \\boxed{{["...", "..."]}} </answer>
a Python list of all answers"""

# For a model with native function calls.
_CALLING = f"""\
{_TASK}Split a complex question into sub-questions and solve one after the other, with as many calls as you \
need, one at a time. Begin each message with your reasoning inside <think>...</think>; then either call one \
tool, or, once the results show it, end with
<answer> the answer is \\boxed{{["...", "..."]}} </answer>
a Python list of all answers"""
_BY_REFERENCE = ", or \\boxed{?x} for all that your last query with ?x found"
# For a model that never saw the dialect.
_CHAT_RULES = """\
Usually you begin with SearchGraphPatterns around a topic entity, since it shows which relations there are; \
write relations in queries as it shows them, and entities as the question does. Each of your messages is one \
turn. Results come from the graph: never write them yourself, and answer with nothing that they did not show.
For instance, which books did the author of Emma (ns:m.0emma) write: SearchGraphPatterns with sparql
SELECT DISTINCT ?x WHERE { VALUES ?x { ns:m.0emma } }
and semantic "author" shows [(?x, book.author, "Jane Austen")]; then ExecuteSPARQL with
SELECT DISTINCT ?y WHERE { ns:m.0emma ns:book.author ?x . ?y ns:book.author ?x }
returns ["Emma", "Persuasion"]; and the last message is
<think>Both are books of hers.</think><answer> the answer is \\boxed{["Emma", "Persuasion"]} </answer>"""

_COMMAND = re.compile(r"<(tool_call|answer)>(.*?)</\1>", re.DOTALL)
# What SearchGraphPatterns takes; Interactive-KBQA names the variable ?e, the paper ?x.
_PATTERN = re.compile(
    r"(?:\s*PREFIX\s+\S*\s*<[^>]*>)*\s*SELECT\s+(?:DISTINCT\s+)?[?$]\w+\s*(?:WHERE\b|\{)", re.IGNORECASE
)
_BOX = re.compile(r"\\boxed\{(.*)\}", re.DOTALL)
_ITEM = re.compile(
    r"""\s*(?:'(?P<single>(?:[^'\\]|\\.)*+)'|"(?P<double>(?:[^"\\]|\\.)*+)"|(?P<bare>[^,\s][^,]*))""",
    re.DOTALL,
)


@PROTOCOLS.register("knowcoder_a1")
@dataclass(frozen=True, slots=True)
class KnowCoderA1:
    """The dialect.

    Attributes:
        prompt: `full` explains it to a pretrained model; `brief` holds the question and its
            entities alone, for a policy that learned the dialect in a cold start.
        max_results: maximum values of a query's result, or types, that the policy reads.
        by_reference: whether `\\boxed{?x}` answers with all that the last query with ?x found. The paper's
            answers are lists; a variable saves a small policy from copying names.
        strict: whether a well-formed turn has a thought with words. Otherwise an empty `<think></think>` will
            do, which the demonstrations of small policies have. A tag within its thought or its command, such
            as a second `<think>` or a `<tool_response>` that the policy made up, is never well formed.
    """

    prompt: Literal["full", "brief"] = "full"
    max_results: int = 20
    by_reference: bool = True
    strict: bool = False

    name: ClassVar[str] = "knowcoder_a1"
    tags: ClassVar[tuple[str, ...]] = (
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<tool_response>",
        "</tool_response>",
        "<answer>",
        "</answer>",
    )
    stop: ClassVar[tuple[str, ...]] = ("</tool_call>", "</answer>")

    def begin(self, question: Question, max_turns: int) -> KnowCoderA1Dialogue:
        return KnowCoderA1Dialogue(question, self)

    def instruction(self, text: str = _INSTRUCTION) -> str:
        """An explanation of the dialect, completed by the forms that an answer may take."""
        return f"{text}{_BY_REFERENCE if self.by_reference else ''}.\n\n"


class KnowCoderA1Dialogue(Dialogue):
    """An episode; it remembers the results of its queries, and the entities that they showed."""

    def __init__(self, question: Question, protocol: KnowCoderA1) -> None:
        self._question, self._protocol = question, protocol
        self._topics = Topics(question.topic_entities)
        self._seen = SeenEntities()
        self._found: list[Success[Any]] = []
        self._action = Action("")
        self._result: ActionResult | None = None

    def first_look(self) -> tuple[Action, ...]:
        return self._topics.look()

    def prompt(self) -> list[Segment]:
        instruction = self._protocol.instruction() if self._protocol.prompt == "full" else ""
        return [
            Segment(f"{instruction}Question: "),
            Segment(self._question.text, trusted=False),
            Segment("\nTopic Entities: "),
            Segment(self._topics.text(gap=""), trusted=False),
            Segment("\nAssistant:"),
        ]

    def opening(self, *, native_tools: bool) -> Opening:
        user = f"Question: {self._question.text}\nTopic Entities: {self._topics.text(gap='')}"
        if native_tools:
            calling = self._protocol.instruction(_CALLING)
            return Opening(calling + _CHAT_RULES, user, tuple(_SIGNATURES))
        return Opening(self._protocol.instruction() + _CHAT_RULES, user)

    def reply(self, text: str) -> Reply:
        turn = read_turn(text, _COMMAND)
        if turn.kind is None:
            return Reply(turn.thought, problem="no <tool_call> or <answer> was found")
        tidy = turn.is_sound(self._protocol.tags, silent=not self._protocol.strict)
        if turn.kind == "answer":
            box = _BOX.search(turn.body)
            answers = self._answers(box[1].strip()) if box else ()
            return Reply(turn.thought, well_formed=tidy and box is not None, answers=answers)
        try:
            self._action = _parse_call(turn.body)
        except _CallError as error:
            return Reply(turn.thought, problem=str(error))
        return Reply(turn.thought, well_formed=tidy, actions=(self._action,))

    def take(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        if self._topics.take(results):
            return ()
        (self._result,) = results
        if isinstance(self._result, Success) and self._action.name == EXECUTE_SPARQL:
            self._seen.add(named(self._result.items))
            self._found.append(self._result)
        return ()

    def observation(self, turns_left: int) -> list[Segment]:
        assert self._result is not None
        if isinstance(self._result, Failure):
            return _response(_error(self._result))
        if self._action.name == SEARCH_GRAPH_PATTERNS:
            return _response(_patterns(self._result))
        if self._action.name == SEARCH_TYPES:
            shown = [item.id for item in self._result.items]
        elif "boolean" in self._result.details:
            shown = [str(self._result.details["boolean"]).lower()]
        else:
            shown = [_row(row) for row in self._result.items]
        most = self._protocol.max_results
        listing = json.dumps(shown[:most], ensure_ascii=False)
        more = f" ... {self._result.total} in all" if self._result.total > most else ""
        return _response(listing + more)

    def complaint(self, problem: str, turns_left: int) -> list[Segment]:
        return _response(problem if problem.startswith("Error") else f"Error! {problem}")

    def _answers(self, boxed: str) -> tuple[PredictedAnswer, ...]:
        """The answers that a box lists, or that its variable stands for."""
        if self._protocol.by_reference and VARIABLE.fullmatch(boxed):
            return answers_by_reference(self._found, boxed)
        return tuple(PredictedAnswer(name, self._seen.ids(name)) for name in dict.fromkeys(_listed(boxed)))


def write_call(thought: str, tool: str, arguments: Mapping[str, str]) -> str:
    """A turn that calls a tool, as the parser reads it back."""
    call = json.dumps({"name": tool, "arguments": dict(arguments)}, ensure_ascii=False)
    return f"<think>{thought}</think><tool_call>{call}</tool_call>"


def write_answer(thought: str, answers: Sequence[str]) -> str:
    """A turn that answers, as the parser reads it back; a single variable answers by reference."""
    by_reference = len(answers) == 1 and VARIABLE.fullmatch(answers[0])
    boxed = answers[0] if by_reference else json.dumps(list(answers), ensure_ascii=False)
    return f"<think>{thought}</think><answer> the answer is \\boxed{{{boxed}}} </answer>"


class _CallError(ValueError):
    """A tool call that cannot be executed, in words for the policy."""


def _parse_call(body: str) -> Action:
    try:
        call = read_json(body)
    except ValueError:
        raise _CallError('a tool call is one JSON object {"name": ..., "arguments": {...}}') from None
    name = call.get("name") if isinstance(call, dict) else None
    if not isinstance(name, str) or name not in _TOOLS:
        raise _CallError(f"there is no such tool; the tools are {', '.join(_TOOLS)}")
    arguments = call.get("arguments")
    required = _REQUIRED[name]
    if (
        not isinstance(arguments, dict)
        or not isinstance(arguments.get(required), str)
        or not arguments[required]
    ):
        raise _CallError(f"Error! {'SPARQL' if required == 'sparql' else required} is required.")
    action, names = _TOOLS[name]
    unknown = [argument for argument in arguments if argument not in names]
    if unknown:
        raise _CallError(f"{name} takes {', '.join(names)} and nothing else")
    if name == "SearchGraphPatterns" and "{" not in arguments["sparql"]:
        raise _CallError("Error! SPARQL must contain {.")
    if name == "SearchGraphPatterns" and not _PATTERN.match(arguments["sparql"]):
        raise _CallError(
            "Error! SPARQL must start with: SELECT ?e WHERE. "
            "You should use `ExecuteSPARQL` to execute SPARQL statements."
        )
    given = {names[argument]: value for argument, value in arguments.items() if value not in (None, "")}
    return Action(action, given)


def _error(failed: Failure) -> str:
    """A failure in the words of Interactive-KBQA, for failures that it has a text for."""
    if failed.kind is ErrorKind.QUERY_TIMEOUT:
        seconds = failed.details.get("timeout_s")
        return "Error: timed out query." if seconds is None else f"Error: timed out after {seconds:g} seconds"
    if failed.details.get("reason") == "unused_variable":
        return "Error! SPARQL must contain at least two ?e."
    if failed.details.get("reason") == "no_values":
        return "[]"
    return f"Error: {failed.message}"


def _patterns(result: Success[Any]) -> str:
    """`[(?e, r1 -> r2, "label"), ...]`, with the variable as head or as tail (Table 9)."""
    variable = result.details.get("variable", "?x")
    shown = []
    for item in result.items:
        relations = " -> ".join(relation["id"] for relation in item["relations"])
        example = json.dumps(item["example"]["label"], ensure_ascii=False) if item["example"] else "..."
        ends = (variable, example) if item["direction"] == "out" else (example, variable)
        shown.append(f"({ends[0]}, {relations}, {ends[1]})")
    return f"[{', '.join(shown)}]"


def _row(row: Mapping[str, Mapping[str, str]]) -> str:
    """The values of a row; an entity without a name as a term that later queries can use."""
    values = []
    for term in row.values():
        label, id_ = term.get("label", term["value"]), term.get("id", term["value"])
        nameless = term["type"] == "uri" and label == id_ and not is_plain_name(id_)
        values.append(entity_term(id_) if nameless else label)
    return " | ".join(values)


def _listed(text: str) -> list[str]:
    """The items of a Python list, quoted either way or not at all."""
    try:
        values = read_json(text)
    except ValueError:
        values = [
            _unquoted(item) for item in _ITEM.finditer(text.strip().removeprefix("[").removesuffix("]"))
        ]
    if not isinstance(values, list):
        values = [values]
    return [name for name in (str(value).strip() for value in values) if name]


def _unquoted(item: re.Match[str]) -> str:
    quoted = item["single"] if item["single"] is not None else item["double"]
    return str(item["bare"]) if quoted is None else re.sub(r"\\(.)", r"\1", quoted)


def _response(text: str) -> list[Segment]:
    return [Segment("<tool_response>"), Segment(text, trusted=False), Segment("</tool_response>")]
