"""A store in a bucket: whole or not there, pulled once, checked, and outlasting a server that is away."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from pathlib import Path

import pytest

from kbqa.errors import ConfigurationError, PolicyIntegrityError, PolicyStoreUnavailableError
from kbqa.policy_store import LocalShelf, PolicyStore, PolicyVersion, RemoteShelf, open_store
from kbqa.policy_store.durable import put_in_place
from tests.unit.policy_store.conftest import publish


def test_a_version_is_pulled_where_it_is_needed_and_checked(bucket, tmp_path) -> None:
    there, here = (PolicyStore(RemoteShelf(bucket, tmp_path / name)) for name in ("trainer", "worker"))
    published = publish(there, 1, "weights")
    version = here.newest("r1")
    assert version is not None
    assert version.manifest == published.manifest
    assert not version.path.exists()
    here.verify(version)
    assert (version.path / "model.safetensors").read_text() == "weights"
    assert version.recipe() == published.recipe()


def test_what_was_damaged_on_the_way_is_refused_and_pulled_again(bucket, tmp_path) -> None:
    here = PolicyStore(RemoteShelf(bucket, tmp_path / "worker"))
    version = publish(PolicyStore(RemoteShelf(bucket, tmp_path / "trainer")), 1, "weights")
    version = here.get("r1", version.id)
    here.verify(version)
    (version.path / "model.safetensors").write_text("wrights")
    with pytest.raises(PolicyIntegrityError, match="does not match its checksum"):
        here.verify(version)
    here.verify(version)
    assert (version.path / "model.safetensors").read_text() == "weights"


def test_what_is_damaged_in_the_bucket_is_refused(bucket, tmp_path) -> None:
    import fsspec

    version = publish(PolicyStore(RemoteShelf(bucket, tmp_path / "trainer")), 1, "weights")
    path = f"{bucket}/r1/{version.id}/model.safetensors"
    fsspec.filesystem("s3").pipe_file(path, b"wrights")
    here = PolicyStore(RemoteShelf(bucket, tmp_path / "worker"))
    with pytest.raises(PolicyIntegrityError, match="does not match its checksum"):
        here.verify(here.get("r1", version.id))
    fsspec.filesystem("s3").rm_file(path)
    with pytest.raises(PolicyIntegrityError, match="is missing"):
        here.verify(here.get("r1", version.id))


def test_an_upload_that_died_half_way_is_no_version(bucket, tmp_path, monkeypatch) -> None:
    store = PolicyStore(RemoteShelf(bucket, tmp_path / "trainer"))
    put, shelf = store._shelf._files.put_file, store._shelf

    def die_at_the_end(here: str, there: str) -> None:
        if there.endswith("manifest.json"):
            raise KeyboardInterrupt
        put(here, there)

    with monkeypatch.context() as patch:
        patch.setattr(shelf._files, "put_file", die_at_the_end)
        with pytest.raises(KeyboardInterrupt):
            publish(store, 1)
    other = PolicyStore(RemoteShelf(bucket, tmp_path / "other"))
    assert other.versions("r1") == []
    assert other.newest("r1") is None


def pull(store: PolicyStore, version: PolicyVersion) -> None:
    store.verify(store.get(version.run, version.id))


def grow_old(cache: Path) -> None:
    """Let what is in a cache have been used an hour ago, in its order."""
    for number, path in enumerate(sorted((cache / "r1").iterdir())):
        os.utime(path, (time.time() - 3600 + number,) * 2)


def cached(cache: Path) -> set[str]:
    return {path.name for path in (cache / "r1").iterdir()}


def test_the_cache_keeps_the_newest_versions_only(bucket, tmp_path) -> None:
    there, here = (PolicyStore(RemoteShelf(bucket, tmp_path / name)) for name in ("trainer", "worker"))
    versions = [publish(there, number, f"w{number}") for number in range(11)]
    for version in versions:
        pull(here, version)
        grow_old(tmp_path / "worker")
    assert cached(tmp_path / "worker") == {version.id for version in versions[-4:]}


def test_what_another_process_loads_or_uses_stays_in_a_shared_cache(bucket, tmp_path) -> None:
    there = PolicyStore(RemoteShelf(bucket, tmp_path / "trainer"))
    here, neighbour = (PolicyStore(RemoteShelf(bucket, tmp_path / "shared")) for _ in range(2))
    versions = [publish(there, number, f"w{number}") for number in range(12)]
    held, loaded, idle, *others = versions
    for version in (held, loaded, idle):
        pull(here, version)
    grow_old(tmp_path / "shared")
    neighbour.hold("gateway", [held])  # which it does all the time
    pull(neighbour, loaded)  # it is here already
    for version in others:
        pull(here, version)
    assert cached(tmp_path / "shared") == {version.id for version in (held, loaded, *others)}


def test_a_version_whose_download_took_long_is_not_removed_at_its_end(bucket, tmp_path, monkeypatch) -> None:
    there, here = (PolicyStore(RemoteShelf(bucket, tmp_path / name)) for name in ("trainer", "worker"))
    slow, *others = [publish(there, number, f"w{number}") for number in range(6)]
    for version in others:
        pull(here, version)

    def put_in_place_after_an_hour(aside: Path, final: Path) -> None:
        put_in_place(aside, final)
        os.utime(final, (time.time() - 3600,) * 2)

    monkeypatch.setattr("kbqa.policy_store.shelves.put_in_place", put_in_place_after_an_hour)
    pull(here, slow)
    assert slow.id in cached(tmp_path / "worker")


def test_a_cache_that_belongs_to_another_user_is_read_and_not_tidied(bucket, tmp_path, monkeypatch) -> None:
    there, here = (PolicyStore(RemoteShelf(bucket, tmp_path / name)) for name in ("trainer", "worker"))
    versions = [publish(there, number, f"w{number}") for number in range(7)]
    for version in versions[:-1]:
        pull(here, version)
    grow_old(tmp_path / "worker")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr("kbqa.policy_store.shelves.remove_directory", refuse)
    here.hold("gateway", [versions[0]])
    pull(here, versions[0])
    pull(here, versions[-1])
    assert cached(tmp_path / "worker") == {version.id for version in versions}


def test_a_store_that_is_away_is_asked_again_and_then_named(tmp_path, monkeypatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(PolicyStoreUnavailableError, match="s3://nowhere/policies"):
        PolicyStore(RemoteShelf("s3://nowhere/policies", tmp_path, patience_s=1)).runs()


def test_a_bucket_that_is_not_there_is_named(bucket, tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="s3://no-such-bucket/policies"):
        publish(PolicyStore(RemoteShelf("s3://no-such-bucket/policies", tmp_path)), 1)


def test_a_url_that_nothing_speaks_says_what_to_install(tmp_path) -> None:
    with pytest.raises(ConfigurationError, match=r"kbqa\[s3\]"):
        open_store(tmp_path, "gopher://x/y")


def test_a_location_may_be_a_directory_or_left_out(tmp_path) -> None:
    publish(open_store(tmp_path), 1)
    assert PolicyStore(tmp_path / "policies").runs() == ["r1"]
    publish(open_store(tmp_path, str(tmp_path / "shared")), 1, run="r2")
    assert PolicyStore(tmp_path / "shared").runs() == ["r2"]


def test_processes_that_pull_the_same_version_at_once_do_not_disturb_each_other(bucket, tmp_path) -> None:
    version = publish(PolicyStore(RemoteShelf(bucket, tmp_path / "trainer")), 1, "weights" * 10_000)
    failures: list[BaseException] = []

    def pull() -> None:
        store = PolicyStore(RemoteShelf(bucket, tmp_path / "shared"))
        try:
            store.verify(store.get("r1", version.id))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=pull) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_publishing_leaves_what_another_process_downloads_into_the_same_cache(bucket, tmp_path) -> None:
    here = tmp_path / "pulled-policies" / "r1"
    fresh, old = here / ".aside-fresh", here / ".aside-old"
    for download in (fresh, old):
        download.mkdir(parents=True)
        (download / "model.safetensors").write_text("half")
    for path in (old / "model.safetensors", old):
        os.utime(path, (0, 0))
    publish(PolicyStore(RemoteShelf(bucket, tmp_path / "pulled-policies")), 1, "weights")
    assert (fresh / "model.safetensors").read_text() == "half"
    assert not old.exists()


@pytest.fixture
def failing(tmp_path, monkeypatch):
    """`failing(errno, times)` makes the next readings of directories fail."""

    def fail(number: int, times: int) -> None:
        left, right = [times], Path.iterdir

        def iterdir(path):
            left[0] -= 1
            if left[0] >= 0:
                raise OSError(number, os.strerror(number))
            return right(path)

        monkeypatch.setattr(Path, "iterdir", iterdir)

    return fail


def test_a_stale_handle_passes(tmp_path, failing) -> None:
    store = PolicyStore(tmp_path / "policies")
    published = publish(store, 1, "weights")
    failing(errno.ESTALE, 1)
    assert store.newest("r1").id == published.id


def test_a_disk_that_does_not_come_back_is_named_and_blames_no_version(tmp_path, failing) -> None:
    store = PolicyStore(LocalShelf(tmp_path / "policies", patience_s=0.0))
    failing(errno.ESTALE, 1000)
    with pytest.raises(PolicyStoreUnavailableError, match="the policy store at .*policies fails .Stale"):
        store.newest("r1")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE])
def test_a_disk_that_takes_nothing_is_named_and_changes_nothing(tmp_path, monkeypatch, number) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    store = PolicyStore(LocalShelf(tmp_path / "policies", patience_s=0.0))
    first, second = publish(store, 1, "a"), publish(store, 2, "b")
    store.promote("r1", first.id)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(PolicyStoreUnavailableError, match="check its disk, its server"):
            store.promote("r1", second.id)
    assert store.promoted().id == first.id
    assert list((tmp_path / "policies").glob(".aside-*")) == []


def test_a_disk_that_cannot_be_read_blames_no_version(tmp_path, monkeypatch) -> None:
    def file_digest(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = PolicyStore(LocalShelf(tmp_path / "policies", patience_s=0.0))
    version = publish(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(hashlib, "file_digest", file_digest)
        with pytest.raises(PolicyStoreUnavailableError, match=f"{version.id} fails .Input/output error"):
            store.verify(version)
    store.verify(version)


def test_other_errors_are_not_taken_for_an_outage(tmp_path, failing) -> None:
    store = PolicyStore(LocalShelf(tmp_path / "policies", patience_s=0.0))
    failing(errno.EACCES, 1)
    with pytest.raises(PermissionError):
        store.newest("r1")


def test_declarations_of_use_are_read_side_by_side(tmp_path) -> None:
    class Slow(LocalShelf):
        reading = most = 0

        def read(self, path: str) -> bytes:
            if ".uses" in path:
                self.reading += 1
                self.most = max(self.most, self.reading)
                time.sleep(0.05)
                self.reading -= 1
            return super().read(path)

    shelf = Slow(tmp_path / "policies")
    store = PolicyStore(shelf)
    versions = [publish(store, number, str(number)) for number in (1, 2, 3)]
    for worker in range(32):
        store.hold(f"worker-{worker}", [versions[worker % 2]])
    assert store.retain("r1", keep=1) == []
    assert shelf.most > 4
