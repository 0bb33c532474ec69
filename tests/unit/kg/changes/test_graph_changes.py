"""Changes of graphs: versions, crash safety, compaction, and what takes no changes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from kbqa.errors import ChangeConflictError, GraphChangeError, GraphNotFoundError, GraphUnavailableError
from kbqa.kg.actions import Action
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.changes import graph_changes
from kbqa.kg.changes.batch import Batch, read_triples
from kbqa.kg.changes.graph_changes import GraphChanges
from kbqa.kg.changes.updates import batch_of_update
from kbqa.kg.loading.files import GraphSource
from kbqa.kg.loading.views import ViewLimits
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.tools import LocalGraphTools

FACTS = "Big|starred|Tom Hanks\nBig|released|1988\nCast Away|starred|Tom Hanks\n"
COUNT = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"


@pytest.fixture
def catalog(tmp_path):
    (tmp_path / "films.txt").write_text(FACTS)
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0, queries=QueryPool(size=1))
    catalog.load("films", tmp_path / "films.txt")
    yield catalog
    catalog.close()


def change(catalog, insert="", delete="", key="", graph="films"):
    def read(shown, store):
        texts = insert, delete
        return Batch(*(frozenset(read_triples(text, "text", named=store.of_names)) for text in texts))

    return GraphChanges(catalog).change(graph, read, key=key)


def stars(store, film):
    return [item.id for item in store.tail_entities([film], ["starred"], limit=9).items]


def count(store):
    return int(store.query(COUNT, deadline_s=60).body.split(b'"value":"')[1].split(b'"')[0])


def test_a_change_is_seen_by_look_ups_sparql_and_linking_and_running_requests_keep_their_version(catalog):
    before = catalog.get("films")
    assert (count(before), before.link("Who is in Splash?")) == (3, [])
    done = change(catalog, "Splash\tstarred\tDaryl Hannah", "Big\treleased\t1988\nBig\treleased\t1989")
    assert (done.inserted, done.deleted, done.ignored, done.triples) == (1, 1, 1, 3)
    assert (done.lost_relations, done.new_relations) == (("released",), ())
    after = catalog.get("films")
    assert after.version == done.version
    assert done.version.startswith(f"{before.version}+1-")
    assert stars(after, "Splash") == ["Daryl Hannah"]
    assert [mention.id for mention in after.link("Who is in Splash?")] == ["Splash"]
    assert [item.id for item in after.complete("spl", limit=9)] == ["Splash"]
    assert before.complete("spl", limit=9) == []
    assert [item.id for item in after.relations()] == ["starred"]
    assert catalog.list()[0].lost_relations == ("released",)
    # The process that executes queries goes back and forth between versions.
    for _ in range(2):
        assert count(after) == 3
        assert b"Splash" in after.query("SELECT ?s { ?s ?p ?o }", deadline_s=60).body
        assert b"1988" in before.query("SELECT ?o { ?s ?p ?o }", deadline_s=60).body
    assert stars(before, "Splash") == []


def test_a_batch_that_changes_nothing_makes_no_version(catalog):
    version = catalog.get("films").version
    done = change(catalog, "Big\tstarred\tTom Hanks", "Big\tstarred\tNobody")
    assert (done.version, done.inserted, done.deleted, done.ignored) == (version, 0, 0, 2)


def test_a_batch_is_applied_once_for_its_key(catalog):
    first = change(catalog, "a\tr\tb", key="k1")
    second = change(catalog, delete="a\tr\tb")
    assert change(catalog, "a\tr\tb", key="k1") == first
    assert catalog.get("films").version == second.version
    with pytest.raises(ChangeConflictError, match="another batch"):
        change(catalog, "a\tr\tc", key="k1")
    GraphChanges(catalog).compact("films")
    assert change(catalog, "a\tr\tb", key="k1") == first


def test_another_process_s_catalog_sees_a_change(catalog, tmp_path):
    other = GraphCatalog(tmp_path / "home", recheck_s=0.0)
    assert stars(other.get("films"), "Splash") == []
    for actor in ("Daryl Hannah", "Tom Hanks"):
        change(catalog, f"Splash\tstarred\t{actor}")
        assert actor in stars(other.get("films"), "Splash")
    # Both versions have the same base, which is open once.
    assert other.latest("films")[1].base.version == catalog.latest("films")[1].base.version
    other.close()


def test_an_update_with_where_reads_the_changed_graph(catalog):
    change(catalog, "Splash\tstarred\tTom Hanks")
    templates = "DELETE { ?f r:starred ?a } INSERT { ?a r:acts_in ?f }"
    text = f"PREFIX r: <urn:kbqa:r:> {templates} WHERE {{ ?f r:starred ?a }}"
    done = GraphChanges(catalog).change(
        "films", lambda shown, store: batch_of_update(text, shown, named=True, deadline_s=30)
    )
    assert (done.inserted, done.deleted) == (3, 3)
    assert (done.lost_relations, done.new_relations) == (("starred",), ("acts_in",))
    films = catalog.get("films").tail_entities(["Tom Hanks"], ["acts_in"], limit=9)
    assert [item.id for item in films.items] == ["Big", "Cast Away", "Splash"]


def test_compaction_keeps_the_facts_and_what_changes_meanwhile(catalog, monkeypatch):
    change(catalog, "Splash\tstarred\tTom Hanks", "Big\treleased\t1988")
    write_anew = graph_changes.write_anew

    def and_change(*given, **options):
        made = write_anew(*given, **options)
        change(catalog, "Big\treleased\t1988\nJaws\treleased\t1975", "Splash\tstarred\tTom Hanks")
        return made

    monkeypatch.setattr(graph_changes, "write_anew", and_change)
    info = GraphChanges(catalog).compact("films")
    assert "+1-" in info.version
    store = catalog.get("films")
    assert (store.triples, count(store)) == (4, 4)
    assert (stars(store, "Splash"), stars(store, "Big")) == ([], ["Tom Hanks"])
    monkeypatch.undo()
    assert "+" not in GraphChanges(catalog).compact("films").version
    assert count(catalog.get("films")) == 4
    assert catalog.list()[0].lost_relations == ()


def test_a_graph_is_loaded_again_over_its_changes(catalog, tmp_path):
    change(catalog, "a\tr\tb")
    loaded = catalog.load("films", tmp_path / "films.txt")
    assert "+" not in loaded.version
    assert count(catalog.get("films")) == 3


def test_a_renamed_relation_is_written_anew(tmp_path):
    (tmp_path / "g.nt").write_text("<http://x/a> <http://x/r> <http://x/b> .\n")
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0)
    catalog.load("g", tmp_path / "g.nt")
    done = change(catalog, '<http://x/r> <http://www.w3.org/2000/01/rdf-schema#label> "knows" .', graph="g")
    assert "+" not in done.version
    assert catalog.get("g").resolve_relation("knows") == ("http://x/r",)
    catalog.close()


def test_the_last_fact_cannot_be_deleted(catalog):
    everything = FACTS.replace("|", "\t")
    with pytest.raises(GraphChangeError, match="at least one"):
        change(catalog, delete=everything)
    assert catalog.get("films").triples == 3


def test_times_go_with_a_deleted_fact(tmp_path):
    (tmp_path / "g.txt").write_text("Japan\tConsult\tChina\t2014-05-13\nJapan\tConsult\tIndia\t2014-05-14\n")
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0)
    catalog.load("g", tmp_path / "g.txt")
    change(catalog, "Japan\tConsult\tPeru", "Japan\tConsult\tChina", graph="g")
    store = catalog.get("g")
    dated = [
        (i.id, getattr(i, "times", ())) for i in store.tail_entities(["Japan"], ["Consult"], limit=9).items
    ]
    assert dated == [("India", ("2014-05-14",)), ("Peru", ())]
    statements = "SELECT ?s { ?s <urn:kbqa:start> ?t }"
    assert store.query(statements, deadline_s=60).rows == 1
    GraphChanges(catalog).compact("g")
    assert catalog.get("g").query(statements, deadline_s=60).rows == 1
    catalog.close()


def test_names_from_a_file_of_labels_outlive_changes(tmp_path):
    (tmp_path / "g.txt").write_text("m.1\tr\tm.2\n")
    (tmp_path / "labels.txt").write_text("m.1\tAnn\tAnnie\nr\tknows\n")
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0)
    catalog.load("g", GraphSource([tmp_path / "g.txt"], labels=tmp_path / "labels.txt"))
    for _ in range(2):
        change(catalog, "m.1\tr\tm.3", graph="g")
        store = catalog.get("g")
        assert store.resolve_entity("Annie") == ("m.1",)
        assert (store.item("m.1").label, store.resolve_relation("knows")) == ("Ann", ("r",))
        GraphChanges(catalog).compact("g")
    catalog.close()


def test_an_unknown_graph_and_a_view_take_no_changes(catalog):
    with pytest.raises(GraphNotFoundError):
        change(catalog, "a\tr\tb", graph="nowhere")
    catalog.make_view("films", "casts", ViewLimits(relations=("starred",)))
    with pytest.raises(ChangeConflictError, match='change the graph "films"'):
        change(catalog, "a\tr\tb", graph="films@casts")


def test_a_view_is_refused_until_the_changed_graph_was_compacted(catalog):
    catalog.make_view("films", "casts", ViewLimits(relations=("starred",)))
    change(catalog, "Splash\tstarred\tTom Hanks")
    assert GraphChanges(catalog).should_be_compacted("films")
    with pytest.raises(GraphUnavailableError):
        catalog.get("films@casts")
    GraphChanges(catalog).compact("films")
    assert stars(catalog.get("films@casts"), "Splash") == ["Tom Hanks"]


def test_actions_are_executed_over_the_changed_graph(catalog):
    change(catalog, "Splash\tstarred\tTom Hanks")
    tools = LocalGraphTools(catalog)
    asked = [
        Action("get_head_entities", {"entity": "Tom Hanks", "relation": "starred"}),
        Action("entity_distance", {"set_a": ["Splash"], "set_b": ["Big"]}),
    ]
    found = tools.execute("films", asked)
    assert [item.id for item in found[0].items] == ["Big", "Cast Away", "Splash"]
    assert found[1].details["distance"] == 2


WRITER = """
import sys
from pathlib import Path
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.changes.batch import Batch
from kbqa.kg.changes.graph_changes import GraphChanges
catalog = GraphCatalog(Path(sys.argv[1]))
changes = GraphChanges(catalog)
for n in range(int(sys.argv[2]), 100_000):
    new, gone = (frozenset({(f"e{m}", "left", "x"), (f"e{m}", "right", "x")}) for m in (n, n - 1))
    batch = Batch(new, gone)
    changes.change("films", lambda shown, store: batch)
    print(n, flush=True)
    if n % 7 == 6:
        changes.compact("films")
"""


def killed_writer(home, first, after_s):
    """The last batch that a process had published when it was killed."""
    command = [sys.executable, "-c", WRITER, str(home), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline()  # it works
        time.sleep(after_s)
        os.kill(child.pid, signal.SIGKILL)
        lines = child.stdout.read().split()
    return int(lines[-1]) if lines else first


def assert_whole(catalog, done):
    """After `done` batches, and perhaps one more, exactly one pair of facts is there, in index and store."""
    store = catalog.get("films")
    there = {item.id for item in store.head_entities(["x"], ["left"], limit=9).items}
    assert there == {item.id for item in store.head_entities(["x"], ["right"], limit=9).items}
    assert there in ({f"e{done}"}, {f"e{done + 1}"})
    assert count(store) == store.triples == 5
    return int(there.pop()[1:])


@pytest.mark.parametrize("name", [".load-x7", ".load-removed-v1"])
def test_what_a_killed_process_left_without_a_lock_is_removed(catalog, tmp_path, name):
    left = tmp_path / "home/graphs/films" / name
    left.mkdir()
    (left / "triples").write_text("half")
    change(catalog, "a\tr\tb")
    assert not left.exists()


@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.integration)])
def test_a_batch_is_whole_or_absent_when_its_process_is_killed(catalog, tmp_path, kills):
    rng, done = random.Random(kills), 0
    for _ in range(kills):
        done = killed_writer(tmp_path / "home", done + 1, rng.uniform(0, 0.5))
        done = assert_whole(catalog, done)
    change(catalog, "a\tr\tb")
    left = [p.name for p in (tmp_path / "home/graphs/films").iterdir() if p.name.startswith(".load-removed")]
    assert left == []
