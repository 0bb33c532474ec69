"""`kbqa ask` against a real gateway and a real kg_server, with policies that recite."""

from __future__ import annotations

import json
import re

import pytest

from kbqa.client.models import AnswerResponse
from kbqa.confidence import Calibration
from services.access.keys import KeyFile
from services.cli.ask import printable, render
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from services.http import background
from tests.services.gateway.conftest import FixedPolicy, NoPolicy, answer, query, recite

STARS = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks, Elizabeth Perkins"))
ASK = ("ask", "Who starred in Big?")


@pytest.fixture
def gateway(kg_server_url, monkeypatch, in_process):
    """Serves a gateway with the given policy for the rest of the test; `kbqa ask` finds it by itself."""
    servers = []

    def make(policies, **settings):
        app = create_app(GatewaySettings.load(kg_server_url=kg_server_url, **settings), policies)
        server = background(app)
        monkeypatch.setenv("KBQA_GATEWAY_URL", server.__enter__())
        servers.append(server)

    yield make
    for server in servers:
        server.__exit__(None, None, None)


def test_an_answer_is_told_with_evidence_and_trajectory(gateway, in_process):
    gateway(FixedPolicy(STARS))
    code, out, _ = in_process(*ASK, "--kg", "films")
    assert code == 0
    lines = out.splitlines()
    assert lines[:2] == ["Tom Hanks", "    Big  starred  Tom Hanks"]
    assert "run 1: answered" in lines
    assert '     get_tail_entities("Big", "starred")' in lines
    assert lines[-1].startswith("policy scripted/v000001-scripted, 2 calls, ")
    assert "<information>" not in out


def test_json_is_the_document_itself(gateway, in_process):
    gateway(FixedPolicy(STARS))
    code, out, _ = in_process(*ASK, "--kg", "films", "--json", "--runs", "2", "--topic", "Big")
    assert code == 0
    document = json.loads(out)
    assert [a["support"] for a in document["answers"]] == ["2/2", "2/2"]


@pytest.mark.parametrize(
    ("question", "text", "says"),
    [
        ("Who starred in Big?", "", "no answer was found"),
        ("Who starred in Big?", "Meg Ryan", "no retrieved fact supports this"),
        ("Where is the bathroom?", "x", "names nothing in the graph"),
    ],
)
def test_without_an_answer_that_facts_support_the_code_is_3(gateway, in_process, question, text, says):
    gateway(FixedPolicy(recite(answer(text))))
    code, out, _ = in_process("ask", question, "--kg", "films")
    assert (code, says in out) == (3, True)


def test_how_sure_the_policy_is_and_that_the_reader_answered_is_told(gateway, in_process):
    gateway(FixedPolicy(STARS, calibration=Calibration(2.0, 0.0, 20), run="reader"))
    code, out, _ = in_process(*ASK, "--kg", "films")
    assert code == 0
    assert "how sure: 0.881\n" in out
    assert "the reader answered, which was not trained on this graph\n" in out
    gateway(FixedPolicy(STARS, calibration=Calibration(-1.0, 0.0, 20), run="reader"))
    assert (
        "the reader was asked, which was not trained on this graph\n" in in_process(*ASK, "--kg", "films")[1]
    )
    gateway(FixedPolicy(STARS))
    out = in_process(*ASK, "--kg", "films")[1]
    assert "how sure" not in out
    assert "reader" not in out


def test_the_best_candidate_is_shown_as_such(gateway, in_process):
    gateway(FixedPolicy(STARS, calibration=Calibration(-1.0, 0.0, 20)))
    code, out, _ = in_process(*ASK, "--kg", "films")
    assert code == 3
    assert out.splitlines()[:4] == [
        "no answer was found: the policy is not sure enough (0.269; at least 0.5 is wanted)",
        "best candidate: Tom Hanks",
        "    Big  starred  Tom Hanks",
        "how sure: 0.269",
    ]
    assert in_process(*ASK, "--kg", "films", "--min-confidence", "0.2")[0] == 0


def test_among_several_graphs_one_must_be_chosen(gateway, in_process):
    gateway(FixedPolicy(STARS))
    code, out, err = in_process(*ASK)
    assert (code, out) == (2, "")
    assert err == "error: several graphs are loaded (films, rdf): choose one with --kg NAME\n"


def test_on_a_terminal_every_step_is_told_as_it_comes(gateway, in_process, monkeypatch):
    gateway(FixedPolicy(STARS))
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take anything for a terminal
    monkeypatch.setenv("NO_COLOR", "1")
    code, out, _ = in_process(*ASK, "--kg", "films")
    lines = [re.sub("\x1b\\[[0-9;]*m", "", line) for line in out.splitlines()]
    assert code == 0
    assert lines[:3] == ["about Big", "  1  so", '     get_tail_entities("Big", "starred")']
    assert lines.index("Tom Hanks") > lines.index("  2  so")
    assert "    Big  starred  Tom Hanks" in lines


def test_the_key_of_a_gateway_that_wants_one_comes_from_the_environment(gateway, in_process, tmp_path):
    _, key = KeyFile(tmp_path / "keys.json").create("ask", graphs=("films",))
    gateway(FixedPolicy(STARS), keys_file=tmp_path / "keys.json")
    code, _, err = in_process(*ASK)
    assert (code, "Authorization: Bearer KEY" in err) == (2, True)
    # The only graph that the key is for needs no name.
    assert in_process(*ASK, KBQA_GATEWAY_API_KEY=key)[0] == 0


def test_errors_of_the_gateway_are_told_as_they_are(gateway, in_process):
    gateway(FixedPolicy(STARS))
    code, _, err = in_process(*ASK, "--kg", "nope")
    assert (code, err.startswith('error: no graph named "nope" (loaded graphs: films, rdf)')) == (2, True)
    gateway(NoPolicy())
    assert in_process(*ASK, "--kg", "films")[::2] == (2, "error: no policy is promoted yet\n")


def test_a_gateway_that_is_not_there_is_named_with_the_remedy(in_process):
    code, _, err = in_process(*ASK, "--gateway", "http://127.0.0.1:9")
    assert code == 2
    assert "no gateway answers at http://127.0.0.1:9" in err
    assert "kbqa up" in err
    assert "--gateway" in err


def test_names_from_a_graph_cannot_steer_the_terminal():
    assert printable("a\x1b[2Jb\nc") == "a\ufffd[2Jb c"
    lines = told(("[red]x[/red]", {"triples": [["a", "\x1b", "b"]]}))
    assert lines[:2] == ["[red]x[/red]", "    a  \ufffd  b"]


def test_a_query_that_found_several_answers_is_told_once():
    def found(name, **more):
        row = {name: {"type": "literal", "value": name, "id": name, "label": name} for name in (name, *more)}
        return name, {"sparql": "SELECT *\nWHERE {}", "rows": [row]}

    query = ["    SELECT *", "    WHERE {}"]
    assert told(found("a"))[:4] == ["a", *query, "    ?a=a"]
    assert told(found("a"), found("b"), ("c", {"triples": [["a", "r", "c"]]}))[:6] == [
        "a",
        "b",
        *query,
        "c",
        "    a  r  c",
    ]
    # Where rows say more than the answer, each is told.
    assert told(found("a", b=1), found("c", b=1))[:8] == [
        *("a", *query, "    ?a=a  ?b=b"),
        *("c", *query, "    ?c=c  ?b=b"),
    ]


def told(*answers) -> list[str]:
    """The lines about answers, each a text and its evidence."""
    document = {
        "id": "1",
        "question": "?",
        "kg": "films",
        "status": "answered",
        "answers": [
            {"value": value, "kind": "literal", "support": "1/1", "evidence": evidence}
            for value, evidence in answers
        ],
        "runs": [],
        "policy": "p",
        "policy_version": "v",
        "recipe": "r",
        "usage": {
            "llm_calls": 0,
            "prompt_tokens": 0,
            "generated_tokens": 0,
            "kg_calls": 0,
            "elapsed_ms": 0,
        },
    }
    return render(AnswerResponse.model_validate(document)).plain.splitlines()
