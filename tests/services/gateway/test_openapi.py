"""Requests made from the gateway's schema: none breaks it, and every answer is as the schema says."""

from __future__ import annotations

from typing import get_args

import hypothesis
import pytest

from kbqa.client.events import Event
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from services.http import background
from tests.services.gateway.conftest import FixedPolicy, answer, query, recite

EVENTS = get_args(get_args(Event)[0])
STARS = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))


def test_everything_that_is_answered_is_documented_with_examples(gateway):
    schema = gateway(FixedPolicy(STARS)).app.openapi()
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert operation["summary"], path
            if path.startswith("/v1"):
                assert {"4XX", "5XX"} & set(operation["responses"]), path
            if "requestBody" in operation:
                (body,) = operation["requestBody"]["content"].values()
                assert {"example", "examples"} & {*body, *body["schema"]}, path


def test_a_client_can_tell_the_events_of_a_stream_apart(gateway):
    schemas = gateway(FixedPolicy(STARS)).app.openapi()["components"]["schemas"]
    written = {get_args(event.model_fields["event"].annotation)[0]: event.__name__ for event in EVENTS}
    assert len(written) == len(EVENTS)
    assert schemas["Event"]["discriminator"] == {
        "propertyName": "event",
        "mapping": {name: f"#/components/schemas/{model}" for name, model in written.items()},
    }


@pytest.mark.integration
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_requests_made_from_the_schema_break_nothing(kg_server_url, tmp_path, mode):
    attack_with_requests(kg_server_url, tmp_path, mode, 150)


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_a_few_requests_made_from_the_schema_break_nothing(kg_server_url, tmp_path, mode):
    attack_with_requests(kg_server_url, tmp_path, mode, 8)


def attack_with_requests(kg_server_url, tmp_path, mode, number):
    import schemathesis  # takes a second, which the other tests need not wait for
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    # A line of JSON is JSON.
    schemathesis.serializer.alias("application/x-ndjson", "application/json")
    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    settings = GatewaySettings.load(home=tmp_path, kg_server_url=kg_server_url, max_timeout_s=5.0)
    with background(create_app(settings, FixedPolicy(STARS))) as url:
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json")

        for operation in schema.get_all_operations():
            strategy = operation.ok().as_strategy(generation_mode=schemathesis.GenerationMode(mode))

            @hypothesis.settings(
                max_examples=number,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(hypothesis.HealthCheck),
            )
            @hypothesis.given(case=strategy)
            def attack(case):
                case.call_and_validate(base_url=url, checks=checks)

            try:
                attack()
            except hypothesis.errors.Unsatisfiable:
                assert mode == "negative"  # nothing can be wrong with a request that has nothing in it
