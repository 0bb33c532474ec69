"""The typed client of the gateway: sends questions, and receives answers with evidence, at once or streamed.

    from kbqa.client import Gateway

    with Gateway("http://127.0.0.1:8080", api_key=key) as gateway:
        document = gateway.answer("Who directed Kismet?", "metaqa", n_runs=3)
        for event in gateway.stream("Who directed Kismet?", "metaqa"):
            print(event)

`AsyncGateway` is the same with `await`. Every error is a `GatewayError` that says what to do.
"""

from kbqa.client.calls import AnswerOptions
from kbqa.client.errors import (
    AccessDeniedError,
    GatewayBusyError,
    GatewayError,
    GatewayFailedError,
    GatewayUnreachableError,
    NotThereError,
    RequestRefusedError,
)
from kbqa.client.gateway import AsyncGateway, Gateway

__all__ = [
    "AccessDeniedError",
    "AnswerOptions",
    "AsyncGateway",
    "Gateway",
    "GatewayBusyError",
    "GatewayError",
    "GatewayFailedError",
    "GatewayUnreachableError",
    "NotThereError",
    "RequestRefusedError",
]
