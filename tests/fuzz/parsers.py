"""What holds for any text that a model may write, as one function of the text for each parser.

`test_parsers` asks it of random texts in every test run; `python -m tests.fuzz` has atheris
look for a text of which it does not hold.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kbqa.chat import ChatReply, ToolCall
from kbqa.environment import Budget, ChatEpisode, Episode, Play
from kbqa.errors import LogicalFormError, QueryError
from kbqa.kg.actions import (
    EXECUTE_LOGICAL_FORM,
    EXECUTE_SPARQL,
    FIND_RELATION,
    NODE_RELATIONS,
    SEARCH_GRAPH_PATTERNS,
    Action,
    ActionResult,
    ErrorCode,
    ErrorKind,
    Failure,
    Item,
    Success,
)
from kbqa.kg.sparql.dialect import lenient, standard
from kbqa.kg.sparql.guard import check_query
from kbqa.kg.sparql.select import ParsedSelect
from kbqa.logical_forms.actions import build, parse_action, print_action, to_actions
from kbqa.logical_forms.algebra import equivalent
from kbqa.logical_forms.compiler import to_sparql
from kbqa.logical_forms.decomposition import decompose
from kbqa.logical_forms.s_expression import parse_s_expression, print_s_expression
from kbqa.logical_forms.sparql_tokens import tokenize
from kbqa.policies.base import Completion, FinishReason
from kbqa.policies.frame import Frame
from kbqa.protocols import PROTOCOLS, AgentProtocol
from kbqa.trajectory import Question, Segment

TURN_END = "\n\x1e\n"  # between the turns of a dialogue
PART_END = "\x1d"  # of a chat model's turn: its text, the function that it calls, arguments, reasoning
QUESTION = Question("q", "who </answer> ?", ("Byron",), ("Ada", "m.0abc"), "world")
BUDGET = Budget(max_turns=6, max_tokens=20_000, max_turn_tokens=2_000, max_observation_tokens=1_000)

# What a graph may call things.
_NAMES = ("Byron", "Washington, D.C.", "</information><answer>", "", "ns:m.0abc", '"1788"', "a.b.c")
_LONG = ".".join(["a_relation_with_a_long_name"] * 6)
_LETTERS = ("é", "ß", "·", "İ", "\u2028", "\U0001f40c", "٣")  # each has broken a parser somewhere


class Bytes:
    """A codec whose tokens are bytes."""

    frame = Frame()

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        return [byte for segment in segments for byte in segment.text.encode()]

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(token_ids).decode(errors="replace")


def graph_says(action: Action) -> ActionResult:
    """Some result of an action, in the shape that the graph server gives it."""
    sent = json.dumps(action.to_json(), ensure_ascii=False).encode()  # as a client would have to
    if len(sent) % 5 == 0:
        details = {"candidates": [{"id": name, "score": 0.5} for name in _NAMES]}
        return Failure(ErrorCode.SERVER_ERROR, ErrorKind.RELATION_REJECTED, "no <such> thing", details)
    items = tuple(Item(name, name or "nobody") for name in _NAMES)
    if action.name in (FIND_RELATION, EXECUTE_LOGICAL_FORM):
        # A gate may put a longer name for every relation that was written.
        written = action.arguments.get("expression", "m.0abc")
        gated = re.sub(r"\br\b", _LONG, written)
        form = f"(JOIN (R {_LONG}) {gated})" if action.name == FIND_RELATION else gated
        return Success(items, len(items), details={"expression": form})
    if action.name == EXECUTE_SPARQL:
        if len(sent) % 7 == 0:
            return Success((), 0, details={"boolean": True})
        names = re.findall(r"\?(\w+)", action.arguments["query"])[:3]
        rows = [{v: {"type": "uri", "value": n, "id": n} for v in names} for n in _NAMES]
        return Success(tuple(rows), 100)
    if action.name == SEARCH_GRAPH_PATTERNS:
        path = [{"id": "a.b"}, {"id": _LONG}]
        return Success(({"relations": path, "example": {"label": "</tool_response>"}, "direction": "in"},), 1)
    if action.name == NODE_RELATIONS:
        return Success(({"line": "<node> a.b ?a"},), 1)
    return Success(items, len(items))


def play(protocol: AgentProtocol, text: str) -> None:
    """An episode that says `text`, turn by turn, ends in no exception, and its tokens only grow."""
    episode = Episode(QUESTION, protocol, Bytes(), BUDGET)
    _execute(episode)  # the first look
    for turn in text.split(TURN_END):
        if episode.done:
            break
        before = list(episode.token_ids)
        written = tuple(turn.encode())
        logprobs = (-0.5,) * len(written)
        episode.act(Completion(written, logprobs, FinishReason.STOP, "v000001-aaaaaaaa"))
        _execute(episode)
        assert episode.token_ids[: len(before) + len(written)] == [*before, *written]
    _end(episode)


def chat(protocol: AgentProtocol, text: str) -> None:
    """As `play`, with a model that chats and may call functions; messages only follow on messages."""
    episode = ChatEpisode(QUESTION, protocol, BUDGET)
    _execute(episode)  # the first look
    for turn in text.split(TURN_END):
        if episode.done:
            break
        before = episode.conversation.messages
        said, name, arguments, reasoning = (turn.split(PART_END) + [""] * 3)[:4]
        called = (ToolCall("c", name, arguments),) if name else ()
        episode.act(ChatReply(said, called, reasoning, len(turn) % 3 == 0, 10, 5, "m"))
        _execute(episode)
        messages = episode.conversation.messages
        assert messages[: len(before)] == before
        json.dumps([message.to_json() for message in messages], ensure_ascii=False).encode()
        roles = {message.role for message in messages[len(before) :]}
        assert roles <= ({"assistant", "tool"} if called else {"assistant", "user"})
    _end(episode)


def _execute(episode: Play) -> None:
    while episode.actions:
        episode.observe([graph_says(action) for action in episode.actions])


def _end(episode: Play) -> None:
    episode.expire()
    trajectory = episode.trajectory()
    assert len(trajectory.answers) == len(trajectory.answer_ids) == len(set(trajectory.answers))
    "".join(trajectory.answers).encode()


def read_s_expression(text: str) -> None:
    """What is read is written, compiled and acted out, or refused in words."""
    try:
        expression = parse_s_expression(text)
    except LogicalFormError:
        return
    assert parse_s_expression(print_s_expression(expression)) == expression
    for use in (to_sparql, lambda form: build(to_actions(form))):
        try:
            use(expression)
        except LogicalFormError:
            continue
    try:
        rebuilt = build(to_actions(expression))
    except LogicalFormError:
        return
    assert equivalent(rebuilt, expression)


def read_action(text: str) -> None:
    for line in text.splitlines():
        try:
            action = parse_action(line)
        except LogicalFormError:
            continue
        assert parse_action(print_action(action)) == action


def read_query(text: str) -> None:
    """The guard, both normalisers and the reader of SELECT refuse a query or make another of it."""
    if "".join(token.text for token in tokenize(text[:2_000])) != text[:2_000]:
        raise AssertionError("tokens are the text")
    try:
        checked = check_query(text)
    except QueryError:
        return
    for rewrite in (standard, lenient):
        rewriting = rewrite(checked)
        rewriting.in_source("error at 1:8 and error at 9999:1")
    try:
        ParsedSelect.parse(text).values_of("x", 10)
    except QueryError:
        return


def take_apart(text: str) -> None:
    try:
        steps = decompose(text)
    except LogicalFormError:
        return
    assert steps[-1].query == text


@dataclass(frozen=True)
class Target:
    """A parser: what has to hold for it, and words of its language."""

    check: Callable[[str], None]
    words: tuple[str, ...]

    def text(self, data: bytes) -> str:
        """The text that some bytes stand for: those of ASCII for themselves, others for words.

        So a fuzzer that changes a byte puts a whole word in, which no change of letters would find.
        """
        words = (*self.words, *_LETTERS)
        return "".join(chr(byte) if byte < 128 else words[(byte - 128) % len(words)] for byte in data)


_SPARQL = (
    *("SELECT", "ASK", "DISTINCT", "WHERE", "{", "}", "(", ")", "?x", "?y", "*", ".", ";", ",", "[", "]"),
    *(
        "FILTER",
        "OPTIONAL",
        "UNION",
        "MINUS",
        "VALUES",
        "BIND",
        "GRAPH",
        "COUNT(?x)",
        "AS",
        "ORDER BY",
        "LIMIT",
    ),
    *(
        "PREFIX ns: <http://rdf.freebase.com/ns/>",
        "ns:a.b.c",
        "<urn:x>",
        "^",
        "/",
        "|",
        "!",
        "&&",
        "OR",
        "AND",
    ),
    *(
        '"1899"^^xsd:dateTime',
        "'a'@en",
        "2.5",
        "008",
        "xsd:datetime(?x)",
        "YEAR(?x)",
        "<",
        ">=",
        "!=",
        "IN",
        "#",
    ),
    *("'''", '"', "\\", "DESC(?x)", "GROUP BY", "HAVING", "SERVICE", "CONSTRUCT", "a", "-", "+", "_:b"),
)
_FORMS = (
    *(
        "(",
        ")",
        "(JOIN r m.0abc)",
        "(R r)",
        "(AND film.film ",
        "ARGMAX",
        "ARGMIN",
        "(le r 5)",
        "COUNT",
        "TC",
        "NOW",
    ),
    *(
        '"a b"@en',
        "39^^http://www.w3.org/2001/XMLSchema#integer",
        "`Tom Hanks`",
        "\\",
        "`",
        "^^",
        "2009-05",
        "r",
    ),
)
_ACTIONS = (
    *("Find_relation [ ", "Merge [ ", "Order [ MAX | ", "Compare [ le | ", "Time_constraint [ ", "Count [ "),
    *(
        "expression1",
        "expression2",
        " | ",
        " ]",
        "\n",
        "Ada",
        "r",
        "(R r)",
        "a.b.from",
        "NOW",
        "5",
        "`",
        '"',
        "^^",
    ),
)
_BY_PROTOCOL = {
    "kg_r1": ('get_tail_entities("Ada", "r")', "get_head_relations(", ")", '"', "'", ", ", "\\u", "["),
    "kbqa_r1": _ACTIONS,
    "knowcoder_a1": (
        *('{"name": "ExecuteSPARQL", "arguments": {"sparql": "SELECT ?x WHERE { ?x ?p ?y }"}}', '{"name": "'),
        *(
            "SearchTypes",
            "SearchGraphPatterns",
            '", "arguments": {"query": "',
            '"}}',
            "\\ud800",
            "\\boxed{[",
            "]}",
        ),
        *("semantic", "null", "1", ",", "'", '"'),
    ),
    "interactive_parsing": ("Ada", "?x", "?y", "SELECT ?x { ?x ?p ?y }", "\\boxed{", "}", ", ", '"', "\n\n"),
    "sparql_refinement": (
        # Everything else ends the episode: chance does not put these four tags in order.
        *("<think>so</think><query>", "<think>so</think><answer>", "</query>" + TURN_END),
        *("SELECT ?x { ?x ?p ?y }", "Byron", "1788", " "),
    ),
}


def _dialogue(name: str, form: Callable[[AgentProtocol, str], None]) -> Target:
    protocol = PROTOCOLS.build(name, {})
    parts = (PART_END,) if form is chat else ()
    words = (*protocol.tags, TURN_END, *parts, "Byron", "Washington, D.C.", *_BY_PROTOCOL[name])
    return Target(lambda text: form(protocol, text), words)


TARGETS = {
    **{name: _dialogue(name, play) for name in _BY_PROTOCOL},
    **{f"{name}_chat": _dialogue(name, chat) for name in _BY_PROTOCOL},
    "s_expression": Target(read_s_expression, _FORMS),
    "action": Target(read_action, _ACTIONS),
    "query": Target(read_query, _SPARQL),
    "decomposition": Target(take_apart, _SPARQL),
}
