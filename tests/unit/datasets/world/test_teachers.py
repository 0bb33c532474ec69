"""What each dialect's teacher can play of the generated worlds' gold programs."""

from collections import Counter

import pytest

from kbqa.cold_start.demonstrations import demonstrate
from kbqa.datasets.world.events import dated_lines, generate_events
from kbqa.datasets.world.everything import ASKED, generate_world_all
from kbqa.datasets.world.temporal import ask_about_events, temporal_splits
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading.files import GraphFormat
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import InteractiveParsing, KbqaR1, KgR1, KnowCoderA1, SparqlRefinement

SIZES = {"cold_start": 18, "train": 0, "validation": 0, "test": 0}
PATHS = {"path", "namesake", "dead end"}


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Tools, and the cold-start questions of either world."""
    home = tmp_path_factory.mktemp("home")
    facts, splits = generate_world_all(1, SIZES, "world-all")
    events = generate_events(1, size=0.4)
    temporal = temporal_splits(ask_about_events(events, 1, SIZES, "temporal-world"))
    (home / "all").write_text("".join(f"{line}\n" for line in facts.lines()), encoding="utf-8")
    (home / "events").write_text(dated_lines(events), encoding="utf-8")
    catalog = GraphCatalog(home)
    catalog.load("world-all", home / "all")
    catalog.load("temporal-world", home / "events", format=GraphFormat.TAB)
    yield LocalGraphTools(catalog, deadline_s=60.0), splits.cold_start, temporal.cold_start
    catalog.close()


def played(tools, questions, protocol, max_turns):
    """Operation → how many of its questions become demonstrations."""
    return Counter(q.operation for q in questions if demonstrate(q, protocol, tools, max_turns) is not None)


def test_logical_forms_play_every_operation_within_the_small_recipes_turns(worlds):
    tools, questions, _ = worlds
    counts = played(tools, questions, KbqaR1("brief"), max_turns=5)
    assert sum(counts.values()) >= 0.7 * len(questions)
    assert {"intersection", "superlative", "comparison", "count", "time", "type"} <= set(counts)


def test_one_query_plays_every_operation(worlds):
    tools, questions, temporal = worlds
    assert set(played(tools, questions, KnowCoderA1("brief"), 3)) == set(ASKED)
    assert sum(played(tools, temporal, KnowCoderA1("brief"), 3).values()) == len(temporal)


def test_a_scalar_dialect_plays_what_has_one_answer(worlds):
    tools, questions, _ = worlds
    counts = played(tools, questions, SparqlRefinement("brief"), 3)
    single = Counter(question.operation for question in questions if len(question.answers) == 1)
    assert counts <= single
    assert sum(counts.values()) >= 0.8 * sum(single.values())


def test_a_query_is_taken_apart_where_the_dialect_parses_interactively(worlds):
    tools, questions, _ = worlds
    counts = played(tools, questions[:9], InteractiveParsing("brief"), 9)
    assert sum(counts.values()) >= 6


def test_one_hop_look_ups_play_paths_and_intersections_alone(worlds):
    tools, questions, temporal = worlds
    assert set(played(tools, questions, KgR1("brief"), 8)) == PATHS | {"intersection"}
    assert sum(played(tools, temporal, KgR1("brief"), 3).values()) >= 0.8 * len(temporal)
