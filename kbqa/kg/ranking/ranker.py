"""Ranks relations and types by similarity to a text.

    schema = schemas.of(store)                       # one per graph version, created lazily
    schema.relations.rank("place of birth", top_k=5)                    # among all of the graph
    schema.relations.rank("place of birth", page.items, top_k=5)        # among some of them

Each text is encoded once and reused in all rankings. An item has up to three texts: its label,
its id without namespace and, for the relations of an embedded graph, its description in the
graph's vocabulary. Its score is the highest of their similarities to the query. An item
scores 1 if the query equals its id or label, ignoring namespace, case, punctuation and spaces.
Scores are rounded to four decimals, so that thresholds apply to the number that an agent reads.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import unicodedata
import weakref
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from kbqa.kg.actions import Item, ScoredItem
from kbqa.kg.common_relations import CommonRelation, lacking, saying
from kbqa.kg.descriptions import description_of
from kbqa.kg.ranking.encoders import Encoder, Matrix, Vector, unit_rows, words
from kbqa.kg.store import GraphStore

logger = logging.getLogger(__name__)

# Texts whose vectors are kept, at 1.5 to 4 KB each; further texts are encoded each time.
_MAX_TEXTS = 100_000
_MAX_QUERIES = 4096
# Texts encoded between two checks of `stopped`: seconds for a dense encoder on a CPU.
_AT_ONCE = 1024

# Ids with a namespace: IRIs, and SPARQL's prefixed names.
_NAMESPACED = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S+")
_NOT_WORD = re.compile(r"[\W_]+")


class _Entry(NamedTuple):
    """An item, the vector rows of its texts (the first if it lacks one), and its normalised names."""

    item: Item
    rows: tuple[int, int, int]
    forms: frozenset[str]


class Ranker:
    """Ranks items of one kind. Safe for many threads.

    Args:
        encoder: encodes texts as vectors.
        all_items: returns the items to rank by default; called once.
        directory: caches the vectors of `all_items` on disk; None for no cache.
        describe: returns an item's description; None if it has none.
    """

    def __init__(
        self,
        encoder: Encoder,
        all_items: Callable[[], Sequence[Item]],
        directory: Path | None = None,
        describe: Callable[[Item], str | None] = lambda item: None,
    ) -> None:
        self._encoder, self._all_items, self._directory = encoder, all_items, directory
        self._describe = describe
        self._query_vector = lru_cache(_MAX_QUERIES)(encoder.encode_query)
        self._entries: dict[str, _Entry] = {}
        self._rows: dict[str, int] = {}
        self._vectors: Matrix = np.empty((0, 0), np.float32)
        self._all: tuple[_Entry, ...] | None = None
        self._lock, self._warming = threading.Lock(), threading.Lock()

    @property
    def encoder(self) -> Encoder:
        return self._encoder

    def count(self) -> int:
        """The number of all items; calls `warm`."""
        self.warm()
        assert self._all is not None
        return len(self._all)

    def warm(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Encode all items, or read their vectors from disk. Otherwise items are encoded when first ranked.

        Args:
            stopped: checked from time to time; once it returns True, encoding stops and nothing is kept.

        Raises:
            GraphUnavailableError, QueryError: the graph cannot list its items.
            EncoderUnavailableError: the encoder does not answer.
        """
        if self._all is None:
            with self._warming:
                if self._all is None:
                    items = self._all_items()
                    texts = list(dict.fromkeys(text for item in items for text in self._texts(item)))
                    vectors = self._all_vectors(texts, stopped)
                    if vectors is not None:
                        self._keep(texts, vectors)
                        self._all = tuple(self._known(items))

    def rank(
        self,
        query: str,
        items: Iterable[Item] | None = None,
        *,
        top_k: int | None = None,
        instruction: str = "",
    ) -> list[ScoredItem]:
        """The items that are most similar to `query`, best first, at most `top_k`.

        Items with the same score are ordered by how literally the query names them (by id, by
        label, otherwise), then by label and id.

        Args:
            items: the items to rank; None for all items, which calls `warm`.
            instruction: as `Encoder.encode_query` takes it.

        Raises:
            EncoderUnavailableError: the encoder does not answer.
        """
        if items is None:
            self.warm()
            assert self._all is not None
            entries: Sequence[_Entry] = self._all
        else:
            entries = self._known(items)
        if not entries:
            return []
        scores = self._scores(query, entries, instruction)
        chosen = range(len(entries)) if top_k is None else _largest(scores, top_k)
        ranked = sorted(
            (
                -float(scores[i]),
                literalness(query, entries[i].item),
                entries[i].item.label,
                entries[i].item.id,
            )
            for i in chosen
        )
        return [ScoredItem(id_, label, -score) for score, _, label, id_ in ranked[:top_k]]

    def similarities(self, query: str, texts: Sequence[str], *, instruction: str = "") -> Vector:
        """Cosine similarity of the query with each text; exact matches are not set to 1. [len(texts)]

        Raises:
            EncoderUnavailableError: the encoder does not answer.
        """
        if not texts:
            return np.empty(0, np.float32)
        spoken = [_spoken(text) for text in texts]
        if len(self._rows) < _MAX_TEXTS:
            vectors = self._keep(spoken)[[self._rows[text] for text in spoken]]
        else:
            vectors = self._encoder.encode(spoken)
        similarities: Vector = vectors @ self._query_vector(_spoken(query), instruction)
        return similarities

    def score_paths(
        self, query: str, paths: Sequence[Sequence[Item]], *, instruction: str = ""
    ) -> list[float]:
        """The similarity of the query with each path of one or two relations, rounded like scores.

        A path's vector is the sum of its relations' vectors, so that thousands of paths require
        no encoding beyond their relations.

        Raises:
            EncoderUnavailableError: the encoder does not answer.
        """
        if not paths:
            return []
        items = {item.id: item for path in paths for item in path}
        rows = {entry.item.id: entry.rows for entry in self._known(items.values())}
        first, last = (np.array([rows[path[end].id] for path in paths]) for end in (0, -1))
        vector, vectors = self._query_vector(_spoken(query), instruction), self._vectors
        similarities = np.stack(
            [unit_rows(vectors[first[:, text]] + vectors[last[:, text]]) @ vector for text in (0, 1)]
        )
        scores: list[float] = similarities.max(axis=0).clip(-1, 1).astype(np.float64).round(4).tolist()
        return scores

    def _scores(self, query: str, entries: Sequence[_Entry], instruction: str) -> NDArray[np.float64]:
        """The score of each entry, rounded. [len(entries)]"""
        vector = self._query_vector(_spoken(query), instruction)
        rows = np.array([entry.rows for entry in entries])
        while rows.shape[1] > 1 and (rows[:, 0] == rows[:, -1]).all():
            rows = rows[:, :-1]  # no descriptions; names without labels
        vectors = self._vectors
        # Copying most of the rows would take longer than multiplying all of them.
        similarities = (vectors @ vector)[rows] if rows.size > len(vectors) // 2 else vectors[rows] @ vector
        scores: NDArray[np.float64] = similarities.max(axis=1).clip(-1, 1).astype(np.float64).round(4)
        form = _bare(query)
        if form:
            scores[[form in entry.forms for entry in entries]] = 1.0
        return scores

    def _known(self, items: Iterable[Item]) -> list[_Entry]:
        """An entry for each item; new items are encoded together."""
        items = list(items)
        new = [item for item in items if item.id not in self._entries]
        if new:
            texts = {item.id: self._texts(item) for item in new}
            self._keep([text for all_ in texts.values() for text in all_])
            for item in new:
                label, name, description = (self._rows[text] for text in texts[item.id])
                forms = frozenset(map(_bare, (item.id, item.label, local_name(item.id))))
                self._entries[item.id] = _Entry(item, (label, name, description), forms)
        return [self._entries[item.id] for item in items]

    def _texts(self, item: Item) -> tuple[str, str, str]:
        """Label, name and description, as they are encoded."""
        name = _spoken(local_name(item.id))
        label = name if item.label == item.id else _spoken(item.label)
        return label, name, self._describe(item) or label

    def _keep(self, texts: Sequence[str], vectors: Matrix | None = None) -> Matrix:
        """Add missing rows for the texts, from `vectors` if given; returns all rows."""
        if vectors is None:
            texts = [text for text in dict.fromkeys(texts) if text not in self._rows]
            vectors = self._encoder.encode(texts) if texts else None
        if vectors is not None:
            # Encoded before locking, since it may take long; rows that another thread added are skipped.
            with self._lock:
                new = [(text, row) for row, text in enumerate(texts) if text not in self._rows]
                added = vectors[[row for _, row in new]]
                self._vectors = np.concatenate([self._vectors, added]) if self._rows else added
                # After the vectors, so that every row in the table has its vector.
                self._rows.update({text: row for row, (text, _) in enumerate(new, start=len(self._rows))})
        return self._vectors

    def _all_vectors(self, texts: Sequence[str], stopped: Callable[[], bool]) -> Matrix | None:
        """Vectors of all items' texts, read from disk, or encoded and saved there; None if stopped."""
        path = None
        if self._directory is not None:
            content = "\0".join([self._encoder.name, *texts]).encode("utf-8", "replace")
            path = self._directory / f"{hashlib.sha256(content).hexdigest()[:32]}.npz"
            if (kept := _read(path, len(texts))) is not None:
                return kept
        parts: list[Matrix] = []
        for start in range(0, len(texts), _AT_ONCE):
            if stopped():
                return None
            parts.append(self._encoder.encode(texts[start : start + _AT_ONCE]))
        vectors = np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
        if path is not None:
            _write(path, vectors)
        return vectors


class SchemaIndex:
    """Ranks the relations and types of one version of a graph.

    A per-question subgraph uses the index of its whole graph: callers pass the subgraph's
    items to `rank`.
    """

    def __init__(self, store: GraphStore, encoder: Encoder, directory: Path | None = None) -> None:
        # A weak reference, so that the store is freed when its graph gets a new version.
        reference = weakref.ref(store)

        def listed(kind: str) -> Sequence[Item]:
            store = reference()
            return [] if store is None else store.relations() if kind == "relations" else store.types()

        def described(item: Item) -> str | None:
            store = reference()
            # At an endpoint, each would be a request.
            return None if store is None or store.is_remote else description_of(store, item.id)

        self.encoder = encoder
        self.relations = Ranker(encoder, lambda: listed("relations"), directory, described)
        self.types = Ranker(encoder, lambda: listed("types"), directory)
        self._listed = listed

    @cached_property
    def lacking(self) -> Sequence[CommonRelation]:
        """The common relations that the graph lacks; see `kbqa.kg.common_relations`."""
        return lacking(self._relation_names.values())

    @cached_property
    def saying(self) -> Mapping[CommonRelation, Sequence[Item]]:
        """The relations of the graph that say common ones; see `kbqa.kg.common_relations`."""
        return saying(self._relation_names)

    @cached_property
    def classes(self) -> Mapping[str, str]:
        """The ids of the types by label, and by the last part of the id, each in lower-case words."""
        types = self._listed("types")
        by_id = {words(local_name(item.id)): item.id for item in types}
        return by_id | {words(local_name(item.label)): item.id for item in types}

    @property
    def _relation_names(self) -> dict[Item, Sequence[str]]:
        return {item: (local_name(item.id), local_name(item.label)) for item in self._listed("relations")}

    def warm(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Warm both rankers, see `Ranker.warm`."""
        self.relations.warm(stopped)
        self.types.warm(stopped)


class Schemas:
    """The schema index of each open graph, created on demand. Safe for many threads.

    Args:
        encoder: shared by all indexes.
        directory: caches vectors on disk; created when needed.
    """

    def __init__(self, encoder: Encoder, directory: Path | None = None) -> None:
        self._encoder, self._directory = encoder, directory
        # Store → (its version, the index); a remote store's version may change.
        self._indexes: weakref.WeakKeyDictionary[GraphStore, tuple[str, SchemaIndex]] = (
            weakref.WeakKeyDictionary()
        )

    def of(self, store: GraphStore) -> SchemaIndex:
        version, index = self._indexes.get(store, ("", None))
        if index is None or version != store.version:
            # If two threads arrive at once, one of the two indexes is discarded.
            index = SchemaIndex(store, self._encoder, self._directory)
            self._indexes[store] = (store.version, index)
        return index


def _spoken(text: str) -> str:
    """A name split into words, to compare it with phrases; a text with spaces is unchanged."""
    return text if " " in text else words(text)


def local_name(id_: str) -> str:
    """An id without its namespace; an id without one, and a text that is no id, as they are."""
    if not _NAMESPACED.fullmatch(id_):
        return id_
    return unquote(re.split("[/#:]", id_.rstrip("/#:"))[-1])


def _bare(text: str) -> str:
    """Letters and digits without case: equal for `Place of birth` and `place_of_birth`."""
    return _NOT_WORD.sub("", unicodedata.normalize("NFKC", local_name(text))).casefold()


def literalness(query: str, item: Item) -> int:
    """0 if the query is an item's id, 1 if it is the item's label, 2 otherwise."""
    return 0 if query == item.id else 1 if query == item.label else 2


def _largest(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Indices of the `count` largest scores, and of all scores tied with the last of them."""
    if count >= len(scores):
        return np.arange(len(scores))
    least = np.partition(scores, -count)[-count]
    return np.flatnonzero(scores >= least)


def _read(path: Path, rows: int) -> Matrix | None:
    """Read vectors saved by `_write`; None if the file is missing or damaged (a zip has checksums)."""
    try:
        # Opened here, since numpy does not close a file that it cannot read.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            vectors: Matrix = arrays["vectors"]
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        logger.warning(
            "saved vectors are damaged; computing them again", extra={"path": str(path), "error": str(error)}
        )
        return None
    return vectors if vectors.dtype == np.float32 and vectors.ndim == 2 and len(vectors) == rows else None


def _write(path: Path, vectors: Matrix) -> None:
    """Save vectors atomically; if the disk fails, they are only encoded again next time."""
    aside = path.with_suffix(f".{os.getpid()}.aside")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            np.savez(file, vectors=vectors)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        logger.warning("vectors cannot be saved", extra={"path": str(path), "error": str(error)})
        with suppress(OSError):
            aside.unlink()
