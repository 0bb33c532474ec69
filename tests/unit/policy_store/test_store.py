"""Versions appear whole, never change unnoticed, and are removed with care."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kbqa.errors import NoPolicyError, PolicyIntegrityError
from kbqa.policy_store import PolicyStore, PolicyVersion

RECIPE = {"name": "tiny", "schedule": {"steps": 3}}
DIGEST = "ab" * 32


@pytest.fixture
def store(tmp_path: Path) -> PolicyStore:
    return PolicyStore(tmp_path / "policies")


def publish(store: PolicyStore, number: int, weights: str = "w", run: str = "r1") -> PolicyVersion:
    def write(directory: Path) -> None:
        (directory / "config.json").write_text("{}")
        (directory / "model.safetensors").write_text(weights)

    return store.publish(
        run, number, write, recipe=RECIPE, recipe_digest=DIGEST, step=number, metrics={"f1": 0.5}
    )


def test_a_version_carries_its_number_recipe_and_checksums(store: PolicyStore) -> None:
    version = publish(store, 6)
    assert version.id == f"v000006-{version.manifest.sha256[:8]}"
    assert version.path.name == version.id
    assert version.recipe() == RECIPE
    assert set(version.manifest.files) == {"config.json", "model.safetensors", "recipe.json"}
    assert (version.manifest.recipe, version.manifest.recipe_digest) == ("tiny", DIGEST)
    store.verify(version)


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


def test_a_write_that_fails_publishes_nothing(store: PolicyStore, tmp_path: Path) -> None:
    def write(directory: Path) -> None:
        (directory / "config.json").write_text("{}")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        store.publish("r1", 1, write, recipe=RECIPE, recipe_digest=DIGEST, step=0, metrics={})
    assert list((tmp_path / "policies" / "r1").iterdir()) == []


def test_what_a_dead_writer_left_is_invisible_and_swept(store: PolicyStore, tmp_path: Path) -> None:
    left = tmp_path / "policies" / "r1" / ".aside-dead"
    left.mkdir(parents=True)
    (left / "manifest.json").write_text("{}")
    assert store.versions("r1") == []
    publish(store, 1)
    assert not left.exists()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda path: (path / "model.safetensors").write_text("x"), "does not match"),
        (lambda path: (path / "config.json").unlink(), "config.json is missing"),
        (lambda path: (path / "evil.py").write_text("x"), "evil.py does not belong"),
    ],
)
def test_verify_finds_damage(store: PolicyStore, damage, complaint: str) -> None:
    version = publish(store, 1)
    damage(version.path)
    with pytest.raises(PolicyIntegrityError, match=complaint):
        store.verify(version)
    with pytest.raises(PolicyIntegrityError):
        store.promote("r1", version.id)


def test_a_version_with_an_unreadable_manifest_is_not_offered(store: PolicyStore) -> None:
    good = publish(store, 1)
    bad = publish(store, 2, "other")
    (bad.path / "manifest.json").write_text("{")
    with pytest.raises(PolicyIntegrityError, match="manifest"):
        store.get("r1", bad.id)
    assert [v.id for v in store.versions("r1")] == [good.id]


@pytest.mark.parametrize("name", ["../r1", "", "R1", "a/b", ".."])
def test_names_never_form_paths_unchecked(store: PolicyStore, name: str) -> None:
    publish(store, 1)
    with pytest.raises(NoPolicyError):
        store.get("r1", name)
    with pytest.raises(NoPolicyError):
        store.versions(name)


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


def test_retention_spares_newest_promoted_and_protected(store: PolicyStore) -> None:
    versions = [publish(store, number, f"w{number}") for number in range(6)]
    store.promote("r1", versions[1].id)
    removed = store.retain("r1", keep=2, protect=[versions[0].id])
    assert removed == [versions[2].id, versions[3].id]
    assert [v.number for v in store.versions("r1")] == [0, 1, 4, 5]
    assert store.retain("r1", keep=0) == [versions[0].id, versions[4].id]
    assert [v.number for v in store.versions("r1")] == [1, 5]


def test_the_promoted_pointer_is_replaced_whole(store: PolicyStore, tmp_path: Path) -> None:
    version = publish(store, 1)
    store.promote("r1", version.id)
    pointer = json.loads((tmp_path / "policies" / "promoted.json").read_text())
    assert (pointer["run"], pointer["id"]) == ("r1", version.id)
    assert [p.name for p in (tmp_path / "policies").iterdir() if p.name.startswith(".")] == []
