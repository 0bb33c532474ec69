"""Domains: what their files may say, and the schemas that are drawn from them."""

from __future__ import annotations

import random
from collections import Counter
from copy import deepcopy

import pytest
import yaml

from kbqa.datasets.world.asking import Asker
from kbqa.datasets.world.domains import domains, draw_schema, read_domain
from kbqa.datasets.world.facts import generate_facts
from kbqa.datasets.world.walks import Limits
from kbqa.errors import DatasetError
from kbqa.logical_forms.algebra import Comparator, Extreme

LIMITS = Limits(answers=40, members=60, lookups=80, returns=True)
PHRASES = {
    "tail_of": ["the ward of {}", "where {} works"],
    "ask_tail": ["where does {} work", "which ward is {} on"],
    "head_of": ["the nurses of {}", "the staff of {}"],
    "ask_head": ["who works on {}", "which nurses are on {}"],
    "heads": ["on {}", "who work on {}"],
    "tails_are": ["of {}", "that {} works on"],
}
DOMAIN = {
    "kinds": {
        "nurse": {"one": "nurse", "many": "nurses", "names": "person", "count": 20},
        "ward": {"one": "ward", "many": "wards", "names": "thing", "count": 5},
    },
    "relations": [
        {"head": "nurse", "tail": "ward", "names": ["works on"], "reversed_names": ["has nurse"], **PHRASES}
    ],
    "quantities": [
        {
            "head": "nurse",
            "names": ["salary", "pay"],
            "datatype": "integer",
            "low": 1,
            "high": 900,
            "value_of": ["the pay of {}", "what {} earns"],
            "ask_value": ["what does {} earn", "how much is {} paid"],
            "most": ["best paid"],
            "least": ["worst paid"],
            "most_records": ["highest pay"],
            "least_records": ["lowest pay"],
        }
        | {one.value: [f"{one.value} {{}}", f"paid {one.value} {{}}"] for one in Comparator}
    ],
}


@pytest.mark.parametrize("name", domains())
def test_each_domain_gives_worlds_that_can_be_asked_about(name):
    rng = random.Random(name)
    schema = draw_schema(domains()[name], 1)
    asker = Asker(generate_facts(schema, rng), name, rng, LIMITS)
    for operation in ("path", "superlative", "comparison", "count", "intersection"):
        asked = [asker.ask(f"{operation}-{number}", operation) for number in range(3)]
        assert all(question.answers and "{" not in question.text for question in asked)


def test_the_same_seed_gives_the_same_schema_and_another_one_other_words():
    domain = read_domain("wards", yaml.safe_dump(DOMAIN))
    assert draw_schema(domain, 1) == draw_schema(domain, 1)
    schemas = [draw_schema(domain, seed) for seed in range(60)]
    links = [link for schema in schemas for link in schema.links]
    assert Counter(link.head for link in links).keys() == {"nurse", "ward"}
    assert {"worksOn", "works_on", "has_nurse", "ward.has_nurse"} < {link.name for link in links}
    for link in links:
        is_told = link.head == "nurse"
        said = set(PHRASES["tail_of" if is_told else "head_of"])
        assert set(link.forward) <= said | {"{} 's ward", "{} 's nurses", "{} 's staff"}
        assert set(link.asks_back) <= set(PHRASES["ask_head" if is_told else "ask_tail"])
        assert set(link.heads) <= set(PHRASES["heads" if is_told else "tails_are"])
    assert "{} 's ward" in {phrase for link in links for phrase in link.forward}
    opaque = [link for link in links if link.label]
    assert {link.label for link in opaque} == {"works on", "has nurse"}
    assert all(link.name[0] == "P" and link.name[1:].isdigit() for link in opaque)
    (quantity,) = schemas[0].quantities
    assert quantity.extremes[Extreme.MAX] == ("best paid",)
    assert set(quantity.compared[Comparator.GT]) == {"gt {}", "paid gt {}"}


def changed(**parts):
    domain = deepcopy(DOMAIN)
    domain["relations"][0] |= parts
    return yaml.safe_dump(domain)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kinds: [", "domain wards: while parsing"),
        (changed(tail="clinic"), "no such kind: clinic"),
        (changed(heads=["on {}"]), "heads"),
        (changed(heads=["on {}", "on them"]), "heads"),
        (changed(colour="red"), "colour"),
        (changed(share=0), "share"),
    ],
)
def test_a_file_that_is_no_domain_is_refused(text, message):
    with pytest.raises(DatasetError, match=message):
        read_domain("wards", text)
