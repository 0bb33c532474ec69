"""A real gateway process is killed while it answers a batch, at many moments."""

from __future__ import annotations

import json
import random
import time
from collections import Counter

import pytest

from kbqa.client import Gateway
from kbqa.client.batches import BatchAnswer, BatchLine
from services.gateway.batches.files import batches_path
from tests.chat_server import serve
from tests.service import Service
from tests.services.gateway.conftest import answer, query

LINES, KILLS = 400, 5


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_no_line_is_lost_or_doubled_when_the_gateway_is_killed(kg_server_url, tmp_path):
    by_chance = random.Random(22)

    def said(body):
        time.sleep(by_chance.random() * 0.01)
        has_asked = any(message["role"] == "assistant" for message in body["messages"])
        return answer("Tom Hanks") if has_asked else query("get_tail_entities", "Big", "starred")

    with serve() as chat:
        chat.script = said
        environment = {
            "KBQA_KG_SERVER_URL": kg_server_url,
            "KBQA_GATEWAY_ENGINE": "external",
            "KBQA_GATEWAY_CHAT_URL": chat.url,
            "KBQA_GATEWAY_CHAT_MODEL": "m",
            "KBQA_GATEWAY_READER": "false",
            "KBQA_GATEWAY_CACHE_BYTES": "0",
        }
        service = Service("gateway", tmp_path, environment)
        try:
            with Gateway(service.ready().url) as client:
                lines = [
                    BatchLine(id=f"q{number}", question=f"Who starred in Big? {number}", kg="films")
                    for number in range(LINES)
                ]
                id_ = client.send_batch(lines).id
                kept, seen = batches_path(tmp_path) / id_ / "answers.jsonl", b""
                for kill in range(1, KILLS + 1):
                    while not kept.exists() or kept.read_bytes().count(b"\n") < kill * LINES // (KILLS + 2):
                        time.sleep(by_chance.random() * 0.01)
                    service.kill()
                    whole, _, torn = kept.read_bytes().rpartition(b"\n")
                    assert whole.startswith(seen)  # what was once read is never changed
                    seen = whole
                    kept.write_bytes(whole + b"\n" + (torn or b'{"line":1,"id"'))
                    service.start_again()
                    service.ready()
                while client.batch(id_).state == "running":
                    time.sleep(0.1)
                answers = list(client.batch_answers(id_))
        finally:
            service.kill()
    assert Counter(one.id for one in answers) == Counter(f"q{number}" for number in range(LINES))
    assert {one.answer.status for one in answers} == {"answered"}
    assert [BatchAnswer.model_validate(json.loads(line)).id for line in seen.split(b"\n")] == [
        one.id for one in answers[: seen.count(b"\n") + 1]
    ]
