"""The documentation's examples are what the gateway takes and gives, and show every field."""

from __future__ import annotations

import json

import pytest

from kbqa.client.events import EVENT, Event
from kbqa.client.models import AnswerRequest, AnswerResponse
from services.gateway.app import create_app
from services.gateway.examples import DOCUMENTS, REQUESTS, STREAMS
from services.gateway.settings import GatewaySettings
from tests.services.gateway.conftest import FixedPolicy
from tests.services.gateway.streams import events_of


def fields(value) -> set[str]:
    """The names of all members, however deep."""
    if isinstance(value, dict):
        return set(value).union(*map(fields, value.values()))
    return set().union(*map(fields, value)) if isinstance(value, list | tuple) else set()


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_requests(name):
    AnswerRequest.model_validate_json(json.dumps(REQUESTS[name]["value"]))


def test_every_field_of_a_request_is_shown():
    assert set(AnswerRequest.model_fields) == set().union(*(e["value"] for e in REQUESTS.values()))


def test_every_field_of_a_document_is_shown():
    documents = [example["value"] for example in DOCUMENTS.values()]
    shown = fields([AnswerResponse.model_validate(document) and document for document in documents])
    names = set(AnswerResponse.model_fields)
    for model in AnswerResponse.model_json_schema()["$defs"].values():
        names |= set(model.get("properties", ()))
    assert names - shown == {"boolean"}  # of an ASK, which stands in for rows


def test_streams_are_streams_and_show_every_event():
    told = [event for e in STREAMS.values() for event in events_of(e["value"].split("\n"))]
    assert {event.event for event in told} == {
        model["properties"]["event"]["const"]
        for model in EVENT.json_schema()["$defs"].values()
        if "event" in model.get("properties", ())
    }
    assert all(isinstance(event, Event.__origin__) for event in told)


def test_the_documentation_holds_them(tmp_path):
    schema = create_app(GatewaySettings.load(home=tmp_path), FixedPolicy()).openapi()
    operation = schema["paths"]["/v1/answer"]["post"]
    content = operation["responses"]["200"]["content"]
    assert content["application/json"]["examples"] == DOCUMENTS
    assert content["text/event-stream"]["examples"] == STREAMS
    assert operation["requestBody"]["content"]["application/json"]["examples"] == REQUESTS
