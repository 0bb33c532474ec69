"""What the names in a question may mean, and where runs begin."""

from __future__ import annotations

from kbqa.kg.actions import Mention
from services.gateway.asking import linking_of
from tests.services.gateway.conftest import FixedPolicy, answer, query, recite

QUESTION = "Did Ann meet Bob?"
ANNS = [Mention(f"ann{n}", "Ann", 4, 7) for n in range(3)]
BOB = Mention("bob", "Bobb", 13, 16, 0.8)


def test_every_name_has_its_turn_before_another_of_the_same():
    assert linking_of(QUESTION, [*ANNS, BOB], 2).topic_entities == ["ann0", "bob"]
    assert linking_of(QUESTION, [*ANNS, BOB], 3).topic_entities == ["ann0", "ann1", "bob"]
    assert linking_of(QUESTION, [*ANNS, BOB], 9).topic_entities == ["ann0", "ann1", "ann2", "bob"]


def test_alternatives_are_told_with_their_scores_and_places():
    ann, bob = linking_of(QUESTION, [*ANNS, BOB], 2).mentions
    assert (ann.text, QUESTION[ann.start : ann.end]) == ("Ann", "Ann")
    assert [(c.id, c.used) for c in ann.candidates] == [("ann0", True), ("ann1", False), ("ann2", False)]
    assert [c.model_dump() for c in bob.candidates] == [
        {"id": "bob", "label": "Bobb", "score": 0.8, "used": True}
    ]


def test_an_entity_that_is_named_twice_is_one_topic():
    twice = [Mention("ann0", "Ann", 4, 7), Mention("ann0", "Ann", 13, 16)]
    linking = linking_of(QUESTION, twice, 2)
    assert linking.topic_entities == ["ann0"]
    assert [mention.candidates[0].used for mention in linking.mentions] == [True, True]


def test_nothing_named_is_nothing_linked():
    assert linking_of(QUESTION, [], 2).model_dump() == {"topic_entities": [], "mentions": []}


def test_an_alternative_can_be_asked_for(gateway):
    script = recite(query("get_head_entities", "Tom Hanks", "starred"), answer("Philadelphia"))
    client = gateway(FixedPolicy(script), max_topic_entities=1)
    ask = {"question": "Are Big and Tom Hanks connected?", "kg": "films"}
    linking = client.post("/v1/answer", json=ask).json()["linking"]
    assert linking["topic_entities"] == ["Big"]
    unused = [c["id"] for m in linking["mentions"] for c in m["candidates"] if not c["used"]]
    assert unused == ["Tom Hanks"]
    body = client.post("/v1/answer", json={**ask, "topic_entities": unused}).json()
    assert body["linking"] == {"topic_entities": ["Tom Hanks"], "mentions": []}
    assert body["answers"][0]["evidence"]["triples"] == [["Philadelphia", "starred", "Tom Hanks"]]
