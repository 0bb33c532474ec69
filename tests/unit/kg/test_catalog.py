"""Loading replaces a graph whole or not at all, while others read it."""

from __future__ import annotations

import threading

import pytest

from kbqa.errors import ConfigurationError, GraphLoadError, GraphNotFoundError
from kbqa.kg import catalog as catalog_module
from kbqa.kg.actions import Item
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore


@pytest.fixture
def catalog(tmp_path):
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0)
    yield catalog
    catalog.close()


@pytest.fixture
def load(catalog, tmp_path):
    def load_lines(name, *lines):
        path = tmp_path / "triples"
        path.write_text("\n".join(lines))
        return catalog.load(name, path)

    return load_lines


def versions(tmp_path, name):
    return {
        entry.name for entry in (tmp_path / "home/graphs" / name).iterdir() if not entry.name.startswith(".")
    }


def test_a_loaded_graph_is_listed_and_opened(catalog, load):
    info = load("films", "Big|starred|Tom Hanks", "Big|released|1988", "Big|released|1988")
    assert (info.name, info.triples, info.entities) == ("films", 2, 3)
    assert catalog.list() == [info]
    store = catalog.get("films")
    assert (store.version, store.triples, store.entities) == (info.version, 2, 3)


def test_a_bad_file_leaves_the_graph_as_it_was(catalog, load, tmp_path):
    before = load("films", "a|r|b")
    with pytest.raises(GraphLoadError):
        load("films", "a|r|b", "a|r")
    assert catalog.list() == [before]
    assert versions(tmp_path, "films") == {before.version, "current"}
    assert not [
        entry
        for entry in (tmp_path / "home/graphs/films").iterdir()
        if entry.is_dir() and entry.name != before.version
    ]


def test_a_file_without_triples_is_refused(load):
    with pytest.raises(GraphLoadError, match="no triples"):
        load("empty", "@prefix : <http://ex.org/> .")


def test_a_new_version_is_picked_up_and_the_old_one_serves_those_who_hold_it(catalog, load, tmp_path):
    first = load("films", "a|r|b")
    held = catalog.get("films")
    second = load("films", "a|r|c")
    assert catalog.get("films").version == second.version != first.version
    assert b'"c"' not in held.query("ASK {}").body
    assert held.resolve_entity("b")
    assert versions(tmp_path, "films") == {first.version, second.version, "current"}


def test_an_old_version_is_removed_once_nobody_holds_it(catalog, load, tmp_path):
    load("films", "a|r|b")
    held = catalog.get("films")
    load("films", "a|r|c")
    catalog.get("films")
    del held
    third = load("films", "a|r|d")
    catalog.get("films")
    fourth = load("films", "a|r|e")
    assert versions(tmp_path, "films") == {third.version, fourth.version, "current"}


def test_the_version_follows_the_content(load):
    first, second, third = load("g", "a|r|b"), load("g", "a|r|c"), load("g", "a|r|b")
    assert first == third != second


def test_the_version_is_looked_up_again_only_after_a_while(tmp_path, load):
    first = load("films", "a|r|b")
    slow = GraphCatalog(tmp_path / "home", recheck_s=60.0)
    assert slow.fresh("films") is None
    assert slow.get("films").version == first.version
    load("films", "a|r|c")
    assert slow.fresh("films").version == slow.get("films").version == first.version
    slow.close()


def test_concurrent_loads_of_one_name_leave_one_whole_graph(tmp_path):
    catalog = GraphCatalog(tmp_path / "home", recheck_s=0.0)
    errors = []

    def load(number):
        path = tmp_path / f"triples-{number}"
        path.write_text("".join(f"s{n}|r|o{number % 3}\n" for n in range(200)))
        try:
            for _ in range(3):
                info = catalog.load("g", path)
                store = GraphCatalog(tmp_path / "home").get("g")
                assert (store.triples, info.triples) == (200, 200)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert catalog.get("g").triples == 200
    assert not list((tmp_path / "home/graphs/g").glob(".load-*"))
    catalog.close()


def test_what_a_killed_load_left_is_swept_up_by_the_next(load, tmp_path):
    load("g", "a|r|b")
    left = tmp_path / "home/graphs/g/.load-killed"
    left.mkdir()
    (left / "lock").touch()
    load("g", "a|r|c")
    assert not left.exists()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\0b", ".hidden", "x" * 65, "ü", "a b", "a\n"]
)
def test_a_name_that_could_leave_the_directory_is_refused(catalog, load, name):
    with pytest.raises(ConfigurationError, match="cannot name a graph"):
        load(name, "a|r|b")
    with pytest.raises(GraphNotFoundError):
        catalog.get(name)


def test_an_unknown_graph_is_not_found_and_the_known_are_named(catalog, load):
    with pytest.raises(GraphNotFoundError, match="no graph is loaded yet"):
        catalog.get("films")
    load("films", "a|r|b")
    with pytest.raises(GraphNotFoundError, match="loaded graphs: films"):
        catalog.get("fims")


def test_fixed_graphs_behave_like_a_catalog():
    store = OxigraphStore.from_triples([("a", "r", "b")])
    graphs = FixedGraphs({"toy": store})
    assert graphs.get("toy") is store
    assert [(info.name, info.triples, info.entities) for info in graphs.list()] == [("toy", 1, 2)]
    with pytest.raises(GraphNotFoundError, match="loaded graphs: toy"):
        graphs.get("none")


def test_a_damaged_graph_does_not_hide_the_others(catalog, load, tmp_path):
    damaged, whole = load("damaged", "a|r|b"), load("whole", "a|r|b")
    (tmp_path / "home/graphs/damaged" / damaged.version / "manifest.json").write_text('{"name": 1')
    assert catalog.list() == [whole]
    with pytest.raises(GraphNotFoundError):
        catalog.get("damaged")


def test_a_graph_of_an_earlier_layout_must_be_loaded_again(catalog, load, tmp_path, caplog):
    old = load("g", "a|r|b")
    manifest = tmp_path / "home/graphs/g" / old.version / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"layout": 2', '"layout": 1'))
    with pytest.raises(GraphNotFoundError):
        catalog.get("g")
    assert "load it again" in caplog.text
    load("g", "a|r|c")
    assert catalog.get("g").resolve_entity("c")


def test_opening_a_graph_reads_neither_its_file_nor_its_store(catalog, load, tmp_path):
    info = load("g", "a|r|b")
    (tmp_path / "home/graphs/g" / info.version / "store").rename(tmp_path / "away")
    (tmp_path / "triples").unlink()
    assert catalog.get("g").tail_entities(["a"], ["r"], limit=1).items == (Item("b", "b"),)


def test_a_version_that_is_replaced_while_it_is_looked_up_is_not_missed(catalog, load, monkeypatch):
    first = load("g", "a|r|b")
    read = catalog_module.read_manifest

    def read_late(directory):
        if directory.name == first.version:
            load("g", "a|r|c")  # and the first is removed
        return read(directory)

    monkeypatch.setattr(catalog_module, "read_manifest", read_late)
    assert catalog.get("g").resolve_entity("c") == ("c",)
