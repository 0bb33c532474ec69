"""Keys in their file, and as a running gateway knows them."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from kbqa.errors import ConfigurationError
from services.access.errors import KeyExpiredError, KeyRequiredError, KeyRevokedError
from services.access.keys import KeyFile, Keys
from tests.network_file_system import CachedAttributes


@pytest.fixture
def file(tmp_path):
    return KeyFile(tmp_path / "gateway" / "keys.json")


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_a_key_is_kept_as_its_hash_alone(file):
    record, key = file.create("reports", graphs=("films",), rate="60/minute", quota="5/second;1000/day")
    text = file.path.read_text()
    assert key not in text
    assert key.split("_", 2)[2] not in text  # the secret part may contain underscores
    assert record.digest == hashlib.sha256(key.encode()).hexdigest()
    assert Keys(file).find(key.encode()) == record == file.read()[0]


@pytest.mark.parametrize("presented", [b"", b"kbqa_", b"\xff\xfe", b"kbqa_00000000_x"])
def test_what_is_no_key_opens_nothing(file, presented):
    file.create("a")
    with pytest.raises(KeyRequiredError, match="Authorization: Bearer KEY"):
        Keys(file).find(presented)


def test_a_key_opens_until_it_expires(file):
    soon, late = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) - timedelta(seconds=1)
    (_, good), (_, bad) = file.create("good", expires=soon), file.create("bad", expires=late)
    keys = Keys(file)
    assert keys.find(good.encode()).name == "good"
    with pytest.raises(KeyExpiredError, match='the key "bad" expired on'):
        keys.find(bad.encode())


def test_a_key_that_is_revoked_on_another_machine_opens_nothing_whatever_is_cached(file, monkeypatch):
    _, key = file.create("first")
    cache = CachedAttributes()
    with cache.caching(monkeypatch):
        keys = Keys(file, clock=Clock())
        assert keys.find(key.encode()).name == "first"
    file.revoke("first")
    with cache.caching(monkeypatch), pytest.raises(KeyRevokedError):
        keys.find(key.encode())


def test_a_running_gateway_notices_what_is_revoked_and_created(file):
    _, first = file.create("first")
    keys = Keys(file, clock=Clock())
    assert keys.find(first.encode()).name == "first"
    assert file.revoke("first").revoked is not None
    with pytest.raises(KeyRevokedError):
        keys.find(first.encode())
    _, second = file.create("second")
    assert keys.find(second.encode()).name == "second"


def test_a_file_that_breaks_later_changes_nothing_and_one_that_is_gone_closes_the_door(file):
    _, key = file.create("a")
    keys = Keys(file, clock=Clock())
    content = file.path.read_bytes()
    file.path.write_text("{")
    assert keys.find(key.encode()).name == "a"
    file.path.write_bytes(content)
    assert keys.find(key.encode()).name == "a"
    file.path.unlink()
    with pytest.raises(KeyRequiredError):
        keys.find(key.encode())


@pytest.mark.parametrize("content", ["{", "[]", '{"keys": [{"id": "x"}]}', '{"keys": [], "more": 1}'])
def test_a_file_that_is_none_of_keys_is_a_wrong_setting(file, content):
    file.path.parent.mkdir()
    file.path.write_text(content)
    with pytest.raises(ConfigurationError, match="is not a key file"):
        Keys(file)


def test_names_of_valid_keys_are_unique_and_can_be_used_again(file):
    file.create("a")
    with pytest.raises(ConfigurationError, match='a key named "a" already exists'):
        file.create("a")
    file.revoke("a")
    record, _ = file.create("a")
    assert file.revoke(record.id).id == record.id
    with pytest.raises(ConfigurationError, match="kbqa keys list"):
        file.revoke("a")
    assert [known.state(datetime.now(UTC)) for known in file.read()] == ["revoked", "revoked"]


@pytest.mark.parametrize(("field", "value"), [("rate", "many"), ("quota", "10"), ("rate", "0.5/second")])
def test_limits_are_read_when_a_key_is_made(file, field, value):
    with pytest.raises(ConfigurationError, match=f"{field}: .*is not a limit: write 60/minute"):
        file.create("a", **{field: value})
    assert not file.path.exists()


def test_keys_that_are_made_at_the_same_time_are_all_kept(file):
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: file.create(f"key-{n}"), range(16)))
    assert len({record.id for record in file.read()}) == 16
    assert {record["name"] for record in json.loads(file.path.read_text())["keys"]} == {
        f"key-{n}" for n in range(16)
    }
