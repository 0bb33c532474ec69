"""Versions appear whole, never change unnoticed, and are removed with care."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kbqa.errors import NoPolicyError, PolicyIntegrityError
from kbqa.policy_store import PolicyStore, uses
from kbqa.policy_store.shelves import LocalShelf
from tests.network_file_system import CachedAttributes
from tests.unit.policy_store.conftest import DIGEST, RECIPE, publish


@pytest.fixture
def directory(tmp_path: Path) -> PolicyStore:
    """A store in tmp_path/policies, into which a test reaches."""
    return PolicyStore(tmp_path / "policies")


def test_a_version_carries_its_number_recipe_and_checksums(store: PolicyStore) -> None:
    version = publish(store, 6)
    assert version.id == f"v000006-{version.manifest.sha256[:8]}"
    assert version.path.name == version.id
    assert version.recipe() == RECIPE
    assert set(version.manifest.files) == {"config.json", "model.safetensors", "recipe.json"}
    assert (version.manifest.recipe, version.manifest.recipe_digest) == ("tiny", DIGEST)
    store.verify(version)


def test_a_version_says_which_graphs_it_was_trained_on_if_that_is_known(directory: PolicyStore) -> None:
    def write(path: Path) -> None:
        (path / "config.json").write_text("{}")

    known = {"recipe": RECIPE, "recipe_digest": DIGEST, "step": 0, "metrics": {}}
    assert directory.publish("r1", 1, write, **known, graphs=["films", "books"]).manifest.graphs == (
        "films",
        "books",
    )
    older = directory.publish("r1", 2, write, **known)
    manifest = json.loads((older.path / "manifest.json").read_text())
    del manifest["graphs"]  # as versions from before there were graphs
    (older.path / "manifest.json").write_text(json.dumps(manifest))
    assert directory.get("r1", older.id).manifest.graphs == ()


def test_same_number_with_other_weights_is_another_id(store: PolicyStore) -> None:
    first, second = publish(store, 6, "before"), publish(store, 6, "after")
    assert first.id != second.id
    assert [v.id for v in store.versions("r1")] == [first.id, second.id]
    newest = store.newest("r1")
    assert newest is not None
    assert newest.id == second.id  # published later


def test_publishing_the_same_again_changes_nothing(store: PolicyStore) -> None:
    assert publish(store, 6).manifest == publish(store, 6).manifest


def test_newest_goes_by_number_and_respects_the_least(store: PolicyStore) -> None:
    assert store.newest("r1") is None
    for number in (2, 10, 9):
        publish(store, number, f"w{number}")
    newest = store.newest("r1", at_least=10)
    assert newest is not None
    assert newest.number == 10
    assert store.newest("r1", at_least=11) is None


def test_a_write_that_fails_publishes_nothing(directory: PolicyStore, tmp_path: Path) -> None:
    def write(path: Path) -> None:
        (path / "config.json").write_text("{}")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        directory.publish("r1", 1, write, recipe=RECIPE, recipe_digest=DIGEST, step=0, metrics={})
    assert list((tmp_path / "policies" / "r1").iterdir()) == []


def test_what_a_dead_writer_left_is_invisible_and_swept(directory: PolicyStore, tmp_path: Path) -> None:
    left = tmp_path / "policies" / "r1" / ".aside-dead"
    left.mkdir(parents=True)
    (left / "manifest.json").write_text("{}")
    assert directory.versions("r1") == []
    publish(directory, 1)
    assert not left.exists()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda path: (path / "model.safetensors").write_text("x"), "does not match"),
        (lambda path: (path / "config.json").unlink(), "config.json is missing"),
        (lambda path: (path / "evil.py").write_text("x"), "evil.py is not part of the version"),
    ],
)
def test_verify_finds_damage(directory: PolicyStore, damage, complaint: str) -> None:
    version = publish(directory, 1)
    damage(version.path)
    with pytest.raises(PolicyIntegrityError, match=complaint):
        directory.verify(version)
    with pytest.raises(PolicyIntegrityError):
        directory.promote("r1", version.id)


def test_a_version_with_an_unreadable_manifest_is_not_offered(directory: PolicyStore) -> None:
    good = publish(directory, 1)
    bad = publish(directory, 2, "other")
    (bad.path / "manifest.json").write_text("{")
    with pytest.raises(PolicyIntegrityError, match="manifest"):
        directory.get("r1", bad.id)
    assert [v.id for v in directory.versions("r1")] == [good.id]


@pytest.mark.parametrize(
    "name",
    ["../r1", "", "R1", "a/b", "..", ".uses", "r1\n", "r1\0", "v000001-00000000\n", "%2e%2e", "~", "/etc"],
)
def test_names_never_form_paths_unchecked(store: PolicyStore, name: str) -> None:
    publish(store, 1)
    with pytest.raises(NoPolicyError):
        store.get("r1", name)
    for look in (store.versions, store.newest, store.ids):
        with pytest.raises(NoPolicyError):
            look(name)
    with pytest.raises(NoPolicyError):
        store.get(name, "v000001-00000000")
    with pytest.raises(NoPolicyError):
        publish(store, 1, run=name)


def test_promotion_points_to_one_version_of_all_runs(store: PolicyStore) -> None:
    with pytest.raises(NoPolicyError, match="kbqa demo"):
        store.promoted()
    first, second = publish(store, 1), publish(store, 4, run="r2")
    store.promote("r1", first.id)
    assert store.promoted() == first
    store.promote("r2", second.id)
    assert store.promoted() == second
    with pytest.raises(NoPolicyError):
        store.promote("r2", first.id)
    assert store.promoted() == second


def test_promotions_are_remembered_oldest_first(store: PolicyStore) -> None:
    assert store.promotions("r1") == []
    versions = [publish(store, number) for number in (1, 2)]
    other = publish(store, 1, run="r2")
    for version in (versions[0], other, versions[1], versions[0]):
        store.promote(version.run, version.id)
    assert store.promotions("r1") == [versions[0].id, versions[1].id, versions[0].id]
    assert store.promotions("r2") == [other.id]
    assert store.promoted() == versions[0]


def test_a_pointer_of_an_earlier_release_is_a_promotion_and_a_damaged_one_is_none(
    directory: PolicyStore, tmp_path: Path
) -> None:
    first, second = publish(directory, 1), publish(directory, 2)
    directory.promote("r1", first.id)
    (pointer,) = tmp_path.rglob("promoted.json")
    pointer.write_text(json.dumps({"run": "r1", "id": first.id}))
    assert directory.promotions("r1") == [first.id]
    pointer.write_text("{")
    assert directory.promotions("r1") == []
    directory.promote("r1", second.id)
    assert directory.promotions("r1") == [second.id]


def test_weights_that_nobody_reads_here_are_not_compared_and_everything_else_is(
    directory: PolicyStore,
) -> None:
    version = publish(directory, 1)
    (version.path / "model.safetensors").write_bytes(b"other weights")
    directory.verify(version, weights=False)
    with pytest.raises(PolicyIntegrityError, match="does not match"):
        directory.verify(version)
    (version.path / "recipe.json").write_text("{}")
    with pytest.raises(PolicyIntegrityError, match="does not match"):
        directory.verify(version, weights=False)


def test_retention_spares_newest_promoted_and_protected(store: PolicyStore) -> None:
    versions = [publish(store, number, f"w{number}") for number in range(6)]
    store.promote("r1", versions[1].id)
    removed = store.retain("r1", keep=2, protect=[versions[0].id])
    assert removed == [versions[2].id, versions[3].id]
    assert [v.number for v in store.versions("r1")] == [0, 1, 4, 5]
    assert store.retain("r1", keep=0) == [versions[0].id, versions[4].id]
    assert [v.number for v in store.versions("r1")] == [1, 5]


def test_the_promoted_pointer_is_replaced_whole(directory: PolicyStore, tmp_path: Path) -> None:
    version = publish(directory, 1)
    directory.promote("r1", version.id)
    pointer = json.loads((tmp_path / "policies" / "promoted.json").read_text())
    assert (pointer["run"], pointer["id"]) == ("r1", version.id)
    assert [p.name for p in (tmp_path / "policies").iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize(
    "name",
    ["../evil.json", "/etc/evil.json", "a/../../evil.json", ".hidden.json", "model.bin", "run.py", "x.pt"],
)
def test_a_manifest_cannot_name_files_outside_or_such_that_run(directory, tmp_path, name: str) -> None:
    version = publish(directory, 1)
    manifest = json.loads((version.path / "manifest.json").read_text())
    manifest["files"][name] = "0" * 64
    (version.path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(PolicyIntegrityError, match="not allowed in a version"):
        directory.get("r1", version.id)


def test_what_could_run_code_is_not_published(store: PolicyStore) -> None:
    def write(path: Path) -> None:
        (path / "pytorch_model.bin").write_bytes(b"pickle")

    with pytest.raises(PolicyIntegrityError, match="pytorch_model.bin"):
        store.publish("r1", 1, write, recipe=RECIPE, recipe_digest=DIGEST, step=0, metrics={})
    assert store.versions("r1") == []


def test_a_promoted_pointer_that_names_something_else_leads_nowhere(directory, tmp_path) -> None:
    publish(directory, 1)
    pointer = {"run": "../..", "id": "../../etc"}
    (tmp_path / "policies" / "promoted.json").write_text(json.dumps(pointer))
    with pytest.raises(NoPolicyError):
        directory.promoted()


def test_what_anybody_holds_stays_until_it_is_let_go(make_store) -> None:
    store, worker = make_store("here"), make_store("worker")
    versions = [publish(store, number, f"w{number}") for number in range(5)]
    worker.hold("worker-1", [versions[0], versions[1]])
    worker.hold("gateway", [versions[2]])
    assert store.retain("r1", keep=1) == [versions[3].id]
    worker.hold("worker-1", [versions[1]])
    assert store.retain("r1", keep=1) == [versions[0].id]
    worker.hold("gateway", [])
    assert store.retain("r1", keep=1) == [versions[2].id]
    assert {v.id for v in store.versions("r1")} == {versions[1].id, versions[4].id}
    with pytest.raises(ValueError, match="not a valid name"):
        store.hold("../../x", [versions[1]])


def test_a_holder_that_died_is_forgotten_after_a_while(store, monkeypatch) -> None:
    versions = [publish(store, number, f"w{number}") for number in range(2)]
    monkeypatch.setattr(uses, "HELD_S", -1.0)
    store.hold("dead", [versions[0]])
    assert store.retain("r1", keep=1) == [versions[0].id]


def test_whoever_holds_a_version_that_is_being_removed_is_told(make_store) -> None:
    store, worker = make_store("here"), make_store("worker")
    first = publish(store, 1, "w1")
    publish(store, 2, "w2")
    assert store.retain("r1", keep=1) == [first.id]
    with pytest.raises(NoPolicyError, match="has been removed"):
        worker.hold("worker-1", [first])


def test_a_version_that_is_held_in_the_moment_of_its_removal_stays(tmp_path, monkeypatch) -> None:
    """The holder says so after it was looked who uses the version, and before its manifest is hidden."""
    shelf = LocalShelf(tmp_path / "policies")
    directory = PolicyStore(shelf)
    first = publish(directory, 1, "w1")
    publish(directory, 2, "w2")
    remove = shelf.remove

    def hold_first(path: str) -> None:
        monkeypatch.setattr(shelf, "remove", remove)
        PolicyStore(shelf.path).hold("late", [first])
        remove(path)

    monkeypatch.setattr(shelf, "remove", hold_first)
    assert directory.retain("r1", keep=1) == []
    directory.verify(directory.get("r1", first.id))


def test_what_a_dead_remover_left_is_removed(directory) -> None:
    left = publish(directory, 1, "w1")
    publish(directory, 2, "w2")
    (left.path / "manifest.json").unlink()
    assert [v.number for v in directory.versions("r1")] == [2]
    directory.retain("r1", keep=1)
    assert not left.path.exists()


def test_a_damaged_version_does_not_displace_the_newest_good_one(directory) -> None:
    versions = [publish(directory, number, f"w{number}") for number in range(3)]
    (versions[2].path / "manifest.json").write_text("{")
    assert directory.retain("r1", keep=1) == [versions[0].id]
    assert [v.id for v in directory.versions("r1")] == [versions[1].id]


def test_retention_does_not_read_what_stays(tmp_path, monkeypatch) -> None:
    shelf = LocalShelf(tmp_path / "policies")
    directory = PolicyStore(shelf)
    for number in range(8):
        publish(directory, number, f"w{number}")
    paths, read = [], shelf.read
    monkeypatch.setattr(shelf, "read", lambda path: paths.append(path) or read(path))
    assert directory.retain("r1", keep=8) == []
    assert sum(path.endswith("manifest.json") for path in paths) == 1


def test_what_another_machine_removed_is_not_held_or_promoted_whatever_is_cached(
    tmp_path, monkeypatch
) -> None:
    store = PolicyStore(tmp_path / "policies")
    version = publish(store, 1)
    manifest = version.path / "manifest.json"

    class Trainer(LocalShelf):
        """Removes the version as soon as somebody has read what there is."""

        def write(self, path, data):
            os.unlink(manifest)
            super().write(path, data)

    for use in (
        lambda store: store.hold("worker-1", [version]),
        lambda store: store.promote(version.run, version.id),
    ):
        data = manifest.read_bytes()
        with CachedAttributes().caching(monkeypatch):
            assert manifest.is_file()
            with pytest.raises(NoPolicyError, match="has been removed"):
                use(PolicyStore(Trainer(tmp_path / "policies")))
        manifest.write_bytes(data)
