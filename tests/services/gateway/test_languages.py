"""`Accept-Language`: answers and the names in questions are labelled in the language of who asks."""

from __future__ import annotations

import json

import pytest

from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from services.gateway.languages import accepted
from tests.services.gateway.conftest import FixedPolicy, answer, query, recite

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
GRAPH = f"""
<http://x/fr> <{LABEL}> "France"@en .
<http://x/fr> <{LABEL}> "Frankreich"@de .
<http://x/fr> <{LABEL}> "França"@pt-BR .
<http://x/es> <{LABEL}> "Spain"@en .
<http://x/es> <{LABEL}> "Spanien"@de .
<http://x/fr> <http://x/borders> <http://x/es> .
"""
FOUND = recite(query("get_tail_entities", "http://x/fr", "http://x/borders"), answer("Spain"))


@pytest.fixture
def client(gateway, tmp_path):
    file = tmp_path / "lands.nt"
    file.write_text(GRAPH, encoding="utf-8")
    catalog = GraphCatalog(tmp_path)
    catalog.load("lands", file)
    yield gateway(FixedPolicy(FOUND), LocalGraphTools(catalog))
    catalog.close()


def ask(client, question, languages, **more):
    headers = {"Accept-Language": languages} if languages is not None else {"Accept-Language": ""}
    return client.post("/v1/answer", json={"question": question, "kg": "lands", **more}, headers=headers)


@pytest.mark.parametrize(
    ("languages", "answered", "named"),
    [
        (None, "Spain", "France"),
        ("de", "Spanien", "Frankreich"),
        ("de-CH, en;q=0.8", "Spanien", "Frankreich"),
        ("pt, de;q=0.5", "Spanien", "França"),
        ("fi", "Spain", "France"),
        ("fi, en", "Spain", "France"),
        ("*;q=0.5, 12345678901234, de;q=zwei", "Spain", "France"),
    ],
)
def test_labels_are_in_the_accepted_language_or_the_graphs_own(client, languages, answered, named):
    document = ask(client, "Which land borders Frankreich?", languages).json()
    assert [(found["id"], found["label"]) for found in document["answers"]] == [("http://x/es", answered)]
    (mention,) = document["linking"]["mentions"]
    assert mention["text"] == "Frankreich"
    assert [candidate["label"] for candidate in mention["candidates"]] == [named]


def test_every_event_of_a_stream_is_labelled_alike_and_the_cache_has_no_language(client):
    for languages, name in (("de", "Spanien"), ("en", "Spain"), ("de", "Spanien")):
        told = ask(client, "Which land borders France?", languages, stream=True).text
        events = [json.loads(line.removeprefix("data: ")) for line in told.splitlines() if "data: " in line]
        labels = [event["labels"]["http://x/es"] for event in events if event["event"] == "observation"]
        labels += [event["answer"]["label"] for event in events if event["event"] == "answer"]
        labels += [found["label"] for found in events[-1]["document"]["answers"]]
        assert labels == [name] * 3
    assert events[-1]["document"]["cached"]


@pytest.mark.parametrize(
    ("header", "languages"),
    [
        ("", ()),
        ("*", ()),
        ("de", ("de",)),
        ("de-CH, fr;q=0.5, en;q=0.8", ("de-CH", "en", "fr")),
        ("de;q=0, en", ("en",)),
        ("de;q=2, en;q=x, fr;v=1, not a tag, nl", ("nl",)),
        (
            ",".join(f"a{letter}" for letter in "abcdefghijkl"),
            ("aa", "ab", "ac", "ad", "ae", "af", "ag", "ah"),
        ),
    ],
)
def test_a_header_is_read_as_http_defines_it(header, languages):
    assert accepted(header) == languages
